// A flame graph: the outermost function at the top. A click makes a frame as wide as the picture.
const flames = (stacks, unit) => {
  const WIDE = 1160, ROW = 18, THIN = 0.5;
  const root = { name: "all", samples: 0, below: new Map(), above: null };
  const frameName = (frame) => frame.function ?? (frame.module ? `[${frame.module}]` : "[unknown]");
  for (const stack of stacks) {
    let node = root;
    node.samples += stack.samples;
    const names = [...(stack.whole ? [] : ["[..]"]), ...[...stack.frames].reverse().map(frameName), ...(stack.waits_for ?? []).map((it) => `[${it}]`)];
    for (const name of names) {
      if (!node.below.has(name)) node.below.set(name, { name, samples: 0, below: new Map(), above: node });
      node = node.below.get(name);
      node.samples += stack.samples;
    }
  }
  const told = make("p", { class: "dim", role: "status" });
  const holder = make("div", { class: "graph", id: "flames" });
  const draw = (top) => {
    const path = [];
    for (let node = top; node; node = node.above) path.unshift(node);
    const boxes = [];
    path.forEach((node, row) => boxes.push([node, 0, WIDE, row]));
    const place = (node, left, wide, row) => {
      let x = left;
      for (const below of [...node.below.values()].sort((a, b) => b.samples - a.samples)) {
        const width = (wide * below.samples) / node.samples;
        if (width >= THIN) {
          boxes.push([below, x, width, row]);
          place(below, x, width, row + 1);
        }
        x += width;
      }
    };
    place(top, 0, WIDE, path.length);
    const rows = boxes.reduce((most, box) => Math.max(most, box[3] + 1), 0);
    const svg = make("svg", { width: WIDE, height: rows * ROW + 2, viewBox: `0 0 ${WIDE} ${rows * ROW + 2}`, role: "group", "aria-label": "Flame graph" });
    for (const [node, x, width, row] of boxes) {
      const share = `${node.name}: ${node.samples} ${unit}, ${((100 * node.samples) / root.samples).toFixed(1)} %`;
      const letters = Math.floor((width - 6) / 7);
      const label = letters < 3 ? "" : node.name.length > letters ? `${node.name.slice(0, letters - 2)}..` : node.name;
      let hash = 0;
      for (const letter of node.name) hash = (hash * 31 + letter.codePointAt(0)) % 997;
      const open = (event) => { if (event.type === "click" || event.key === "Enter" || event.key === " ") { event.preventDefault(); draw(node); } };
      const box = make("g", { class: `flame flame${node.name.startsWith("[") ? "x" : hash % 5}`, role: "button", "aria-label": share, onclick: open, onkeydown: open,
        onmouseenter: () => { told.textContent = share; }, onfocus: () => { told.textContent = share; } },
        make("title", {}, share), make("rect", { x, y: row * ROW, width: Math.max(0.5, width - 1), height: ROW - 1 }), make("text", { x: x + 3, y: row * ROW + 13 }, label));
      // Not hundreds of stops for the Tab key: those that can be read.
      if (width >= 40) box.setAttribute("tabindex", "0");
      svg.append(box);
    }
    holder.replaceChildren(svg);
    told.textContent = `${top.name}: ${top.samples} ${unit} of ${root.samples}`;
  };
  if (root.samples) draw(root);
  return [told, holder];
};
