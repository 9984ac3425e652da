//! Stacks as lines, and as a flame graph in one file.

use super::safe;
use std::collections::BTreeMap;
use std::fmt::Write;
use threadglass::model::{Frame, Profile, ProfileKind as Kind, StackShare};

/// Width of the picture, and of what stands beside the flames.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 17.0;
const TOP: f64 = 48.0;
/// Narrower frames are left out: nobody would see them.
const NARROWEST: f64 = 0.2;
/// Width of a letter.
const LETTER: f64 = 7.0;

/// One line for each stack: its frames, the outermost first, and how often it was seen.
pub fn folded(profile: &Profile) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        *lines.entry(names(profile, stack).join(";")).or_default() += stack.samples;
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    lines.into_iter().fold(String::new(), |mut out, (stack, samples)| {
        let _ = writeln!(out, "{stack} {samples}");
        out
    })
}

/// The names of a stack, the outermost first. The process comes first of all; what is waited for, and who holds
/// it, comes last, in brackets.
fn names(profile: &Profile, stack: &StackShare) -> Vec<String> {
    let process = std::iter::once(clean(&profile.target.name));
    let cut = (!stack.whole).then(|| "[..]".to_owned());
    let frames = stack.frames.iter().rev().map(name);
    let waits = stack.waits_for.iter().map(|word| format!("[{}]", clean(word)));
    process.chain(cut).chain(frames).chain(waits).collect()
}

fn name(frame: &Frame) -> String {
    match (&frame.function, &frame.module) {
        (Some(function), _) => clean(function),
        (None, Some(module)) => format!("[{}]", clean(module.trim_matches(['[', ']']))),
        (None, None) => "[unknown]".to_owned(),
    }
}

/// A name that cannot be taken for two.
fn clean(name: &str) -> String {
    safe(name).replace(';', ":")
}

#[derive(Default)]
struct Node {
    samples: u64,
    callees: BTreeMap<String, Node>,
}

impl Node {
    fn depth(&self) -> usize {
        1 + self.callees.values().map(Self::depth).max().unwrap_or(0)
    }
}

/// A flame graph: a click on a frame makes it as wide as the picture, a click on the ground brings all back.
pub fn svg(profile: &Profile) -> String {
    let mut root = Node::default();
    for stack in &profile.stacks {
        let mut node = &mut root;
        node.samples += stack.samples;
        for name in names(profile, stack) {
            node = node.callees.entry(name).or_default();
            node.samples += stack.samples;
        }
    }
    let height = TOP + root.depth() as f64 * ROW + MARGIN;
    let (what, unit) = match profile.kind {
        Kind::Cpu => ("on CPUs", "samples"),
        Kind::Wait => ("waiting", "waits"),
    };
    let title = format!("{} (pid {}), {what}", profile.target.name, profile.target.pid);
    let seconds = profile.duration_ms as f64 / 1000.0;
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect id=\"ground\" width=\"100%\" height=\"100%\" fill=\"#fdfdfb\"/>\n\
         <text x=\"{middle}\" y=\"20\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n\
         <text id=\"told\" x=\"{MARGIN}\" y=\"38\">{samples} {unit} in {seconds:.1} s</text>\n\
         <text id=\"find\" x=\"{right}\" y=\"38\" text-anchor=\"end\">search</text>\n<g id=\"frames\">\n",
        title = escape(&title),
        middle = WIDTH / 2.0,
        right = WIDTH - MARGIN,
        samples = root.samples,
    );
    let scale = (WIDTH - 2.0 * MARGIN) / root.samples.max(1) as f64;
    let drawing = Drawing { scale, bottom: height - MARGIN, all: root.samples, unit, cold: profile.kind == Kind::Wait };
    drawing.nodes(&mut out, &root, 0, 0);
    let _ = write!(out, "</g>\n<script><![CDATA[{SCRIPT}]]></script>\n</svg>\n");
    out
}

struct Drawing {
    scale: f64,
    bottom: f64,
    all: u64,
    unit: &'static str,
    cold: bool,
}

impl Drawing {
    fn nodes(&self, out: &mut String, node: &Node, mut from: u64, level: usize) {
        for (name, callee) in &node.callees {
            let width = callee.samples as f64 * self.scale;
            if width >= NARROWEST {
                let (x, y) = (MARGIN + from as f64 * self.scale, self.bottom - (level as f64 + 1.0) * ROW);
                let label = cut(name, width);
                let _ = writeln!(
                    out,
                    "<g data-n=\"{name}\"><title>{name}: {samples} {unit}, {percent:.1} %</title><rect x=\"{x:.2}\" y=\"{y}\" \
                     width=\"{width:.2}\" height=\"{row}\" fill=\"{colour}\"/><text x=\"{text:.2}\" y=\"{base}\">{label}</text></g>",
                    name = escape(name),
                    samples = callee.samples,
                    unit = self.unit,
                    percent = callee.samples as f64 * 100.0 / self.all.max(1) as f64,
                    row = ROW - 1.0,
                    colour = self.colour(name),
                    text = x + 3.0,
                    base = y + 12.0,
                    label = escape(&label),
                );
                self.nodes(out, callee, from, level + 1);
            }
            from += callee.samples;
        }
    }

    /// One colour for one name, everywhere: warm for work, cold for waits, grey for what is not code.
    fn colour(&self, name: &str) -> String {
        let hash = name.bytes().fold(2_166_136_261u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
        let (a, b) = (hash % 60, hash / 60 % 40);
        match (name.starts_with('['), self.cold) {
            (true, _) => format!("rgb({0},{0},{1})", 190 + b / 2, 200 + b),
            (false, false) => format!("rgb({},{},{})", 215 + b, 110 + 2 * a, 60 + a / 2),
            (false, true) => format!("rgb({},{},{})", 90 + a, 140 + a, 205 + b),
        }
    }
}

/// As much of a name as fits.
fn cut(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    match name.chars().count() {
        length if length <= room => name.to_owned(),
        _ if room < 4 => String::new(),
        _ => name.chars().take(room - 2).chain("..".chars()).collect(),
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in safe(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

const STYLE: &str = "#frames g{cursor:pointer}#frames g:hover rect{stroke:#333}#frames text{pointer-events:none}\
                     #find{cursor:pointer}.found rect{fill:#b4f}.above{opacity:.5}";

const SCRIPT: &str = r#"
(function () {
  var W = 1180, M = 10, all = Array.prototype.slice.call(document.querySelectorAll('#frames g'));
  all.forEach(function (g) {
    var r = g.querySelector('rect');
    g.x = +r.getAttribute('x'); g.w = +r.getAttribute('width'); g.y = +r.getAttribute('y');
    g.onclick = function () { zoom(g); };
  });
  function place(g, x, w) {
    var r = g.querySelector('rect'), t = g.querySelector('text'), n = g.getAttribute('data-n');
    var room = Math.floor((w - 6) / 7);
    r.setAttribute('x', x); r.setAttribute('width', Math.max(w, 0.1)); t.setAttribute('x', x + 3);
    t.textContent = n.length <= room ? n : room < 4 ? '' : n.slice(0, room - 2) + '..';
  }
  function zoom(to) {
    all.forEach(function (g) {
      var under = to && g.y > to.y && g.x <= to.x + 0.01 && g.x + g.w >= to.x + to.w - 0.01;
      var inside = !to || (g.y <= to.y && g.x >= to.x - 0.01 && g.x + g.w <= to.x + to.w + 0.01);
      g.style.display = under || inside ? '' : 'none';
      g.classList.toggle('above', !!under);
      if (under) place(g, M, W);
      else if (inside && to) place(g, M + (g.x - to.x) / to.w * W, g.w / to.w * W);
      else if (inside) place(g, g.x, g.w);
    });
  }
  document.getElementById('ground').onclick = function () { zoom(null); };
  document.getElementById('find').onclick = function () {
    var text = prompt('part of a name'), told = document.getElementById('told'), sum = 0, end = -1;
    all.forEach(function (g) { g.classList.toggle('found', !!text && g.getAttribute('data-n').indexOf(text) >= 0); });
    all.filter(function (g) { return g.classList.contains('found'); })
      .sort(function (a, b) { return a.x - b.x || b.w - a.w; })
      .forEach(function (g) { if (g.x >= end - 0.01) { sum += g.w; end = g.x + g.w; } });
    if (!told.all) told.all = told.textContent;
    told.textContent = told.all + (text ? ', ' + (100 * sum / W).toFixed(1) + ' % with ' + text : '');
  };
})();
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(escape("a<b>&\"c\"\n"), "a&lt;b&gt;&amp;&quot;c&quot;\\n");
        assert_eq!(clean("f(a;b)\n"), "f(a:b)\\n");
        assert_eq!((cut("function", 100.0).as_str(), cut("function", 48.0).as_str()), ("function", "func.."));
        assert_eq!(cut("function", 10.0), "");
    }
}
