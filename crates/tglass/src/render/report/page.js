"use strict";
// Shows the snapshot that this file carries. Whatever a name holds is text: nothing here parses markup.
(async () => {
  const rest = document.getElementById("rest");
  const make = (tag, attributes = {}, ...children) => {
    const svg = ["svg", "g", "rect", "path", "text", "title", "defs", "marker"].includes(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
  const contents = make("nav", { "aria-label": "Contents" });
  rest.append(contents);
  const section = (title, ...children) => {
    const id = `s-${title.toLowerCase().replaceAll(" ", "-")}`;
    contents.append(make("a", { href: `#${id}` }, title));
    rest.append(make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), ...children));
  };

  if (typeof DecompressionStream === "undefined") {
    section("Not shown", make("p", {}, "This browser is too old to unpack the data in this file."));
    return;
  }
  // The text of a part of the data; empty where it was not asked for.
  const unpacked = async (id) => {
    const packed = document.getElementById(id).textContent.trim();
    if (!packed) return "";
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const [text, contentionText, profileText] = await Promise.all(["data", "contention", "profile"].map(unpacked));
  const seen = JSON.parse(text);
  const contention = contentionText ? JSON.parse(contentionText) : null;
  const profile = profileText ? JSON.parse(profileText) : null;

  // ---- names ----
  const threadOf = new Map(seen.threads.filter((it) => it.lwp !== null).map((it) => [it.lwp, it]));
  const taskOf = new Map((seen.tasks ?? []).map((it) => [it.id, it]));
  const objectOf = new Map(seen.objects.map((it) => [it.address, it]));
  const words = (word) => String(word).replaceAll("_", " ");
  let tasks = null;
  const threadName = (lwp) => {
    const name = threadOf.get(lwp)?.name;
    return name ? `${name} (${lwp})` : `thread ${lwp}`;
  };
  const objectName = (address) => {
    const object = objectOf.get(address);
    if (!object) return address;
    const name = object.name ?? address;
    return name.startsWith("the ") ? name : `${words(object.kind)} ${name}`;
  };
  const age = (ms) => {
    if (ms === null || ms === undefined) return "";
    if (ms < 1000) return `${ms}ms`;
    const s = Math.floor(ms / 1000);
    if (s < 60) return `${(ms / 1000).toFixed(1)}s`;
    const two = (n) => String(n).padStart(2, "0");
    if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
    return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
  };
  // A time that was counted in nanoseconds.
  const time = (ns) => {
    if (ns < 1e3) return `${Math.round(ns)} ns`;
    if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)} us`;
    if (ns < 1e9) return `${(ns / 1e6).toPrecision(3)} ms`;
    return `${(ns / 1e9).toPrecision(3)} s`;
  };
  const call = (it) => {
    const ends = (it.descriptors ?? []).map((end) => (end.file ? `${end.number} (${end.file})` : `${end.number}`));
    return ends.length ? `${it.name} ${ends.join(", ")}` : it.name;
  };
  const waitsFor = (thread) => {
    const wait = thread.waits_for;
    if (wait) {
      const holders = wait.held_by ?? [];
      if (wait.kind === "join" && holders.length) return `the end of ${holders[0]}`;
      const side = wait.side ? `${wait.side} ` : "";
      const held = holders.length ? `, held by ${holders.slice(0, 3).join(", ")}${holders.length > 3 ? " .." : ""}` : "";
      return side + objectName(wait.address) + held;
    }
    if (thread.waits_outside) return thread.waits_outside.text;
    return thread.syscall ? call(thread.syscall) : "";
  };
  const frameText = (frame) => {
    const name = frame.function ?? (frame.module ? "??" : frame.pc);
    const offset = frame.offset ? `+0x${frame.offset.toString(16)}` : "";
    const inlined = frame.inlined ? " [inlined]" : "";
    const module = frame.module ? ` (${frame.module})` : "";
    const line = frame.file ? ` ${frame.file.split("/").pop()}:${frame.line ?? "?"}` : "";
    const evidence = frame.evidence === "inferred" ? " [inferred]" : "";
    return name + (inlined ? "" : offset) + inlined + module + line + evidence;
  };
  const stackText = (frames) => (frames.length ? frames.map(frameText).join("\n") : "no stack was read");

  // ---- findings ----
  const inCircle = new Set();
  // What is told besides of a process that may be well.
  const HARMLESS = ["long_chain", "holder_unknown", "handed_over", "blocked_worker", "owner_died"];
  const isHang = (kind) => !HARMLESS.includes(kind);
  for (const finding of seen.findings.filter((it) => isHang(it.kind))) {
    finding.threads.forEach((lwp) => inCircle.add(`t${lwp}`));
    finding.objects.forEach((address) => inCircle.add(`o${address}`));
    (finding.tasks ?? []).forEach((id) => inCircle.add(`k${id}`));
  }
  const show = (id) => {
    const row = document.getElementById(id);
    if (!row) return;
    if (row.dataset.open === "no") row.click();
    row.scrollIntoView({ block: "center" });
    row.focus();
  };
  const toThread = (lwp) => { threads.reveal(lwp); show(`t${lwp}`); };
  const chip = (lwp) => make("button", { class: "chip", type: "button", onclick: () => toThread(lwp) }, threadName(lwp));
  const taskChip = (id) => make("button", { class: "chip", type: "button", onclick: () => { tasks?.reveal((it) => it.id === id); show(`k${id}`); } }, `task ${id}`);
  const CHIPS = 24;
  // A chain that a worse finding tells of, too, is told once.
  const isTold = (it) => seen.findings.some((other) => other !== it && other.text.startsWith(it.text));
  const findings = seen.findings.filter((it) => !isTold(it));
  if (findings.length) {
    section("Findings", ...findings.map((finding) => {
      const all = [...finding.threads.map((lwp) => () => chip(lwp)), ...(finding.tasks ?? []).map((id) => () => taskChip(id))];
      const shown = all.slice(0, CHIPS).map((it) => it());
      const more = all.length > CHIPS ? `and ${all.length - CHIPS} more` : "";
      const behind = finding.behind.length ? make("p", { class: "dim" }, `${finding.behind.length} more wait behind: `,
        ...finding.behind.slice(0, CHIPS).map(chip), finding.behind.length > CHIPS ? ".." : "") : null;
      const grade = isHang(finding.kind) ? (finding.certainty === "possible" ? "fair" : "bad") : "fair";
      return make("div", { class: `card ${grade}` },
        make("p", {}, make("b", { class: "kind" }, words(finding.kind)), ` (${finding.certainty})`),
        make("p", {}, finding.text), make("p", {}, ...shown, more), behind);
    }));
  }

  // ---- the graph of waits ----
  const drawGraph = () => {
    const nodes = new Map(), edges = [];
    const node = (id, kind, title, small, onOpen) => {
      if (!nodes.has(id)) nodes.set(id, { id, kind, title, small, onOpen });
      return id;
    };
    const threadNode = (lwp) => node(`t${lwp}`, "thread", threadName(lwp),
      threadOf.get(lwp) ? words(threadOf.get(lwp).state) : "", () => toThread(lwp));
    const edge = (from, to, evidence, label) => edges.push({ from, to, evidence, label });
    const holderIn = (object) => (object.holders ?? []).filter((it) => it.lwp !== null);
    const matters = new Set(seen.findings.flatMap((it) => it.threads));
    const holds = new Set(seen.objects.flatMap((it) => holderIn(it).map((holder) => holder.lwp)));
    const taskNode = (id) => node(`k${id}`, "task", `task ${id}`, taskOf.get(id)?.wait?.reason ?? words(taskOf.get(id)?.state ?? ""),
      () => { tasks?.reveal((it) => it.id === id); show(`k${id}`); });
    for (const object of seen.objects) {
      const [waiting, holding] = [object.waiting_tasks ?? [], object.holding_tasks ?? []];
      if (!waiting.length || (!holding.length && !inCircle.has(`o${object.address}`) && !waiting.some((it) => inCircle.has(`k${it.task}`)))) continue;
      const at = node(`o${object.address}`, "lock", objectName(object.address), words(object.state ?? ""), () => show(`o${object.address}`));
      const folded = waiting.length > 6 ? waiting.filter((it) => !inCircle.has(`k${it.task}`)) : [];
      waiting.filter((it) => !folded.includes(it)).forEach((it) => edge(taskNode(it.task), at, it.evidence, "waits"));
      if (folded.length) {
        const first = folded[0].task;
        const id = node(`g${object.address}`, "task", `${folded.length} tasks`, "wait", () => { tasks?.reveal((it) => it.id === first); show(`k${first}`); });
        edge(id, at, folded[0].evidence, "wait");
      }
      holding.forEach((it) => edge(at, taskNode(it.task), it.evidence, `held by (${it.evidence})`));
    }
    for (const task of seen.tasks ?? []) {
      for (const object of task.wait?.objects ?? []) {
        for (const id of object.woken_by ?? []) {
          if (inCircle.has(`k${task.id}`) && inCircle.has(`k${id}`)) edge(taskNode(task.id), taskNode(id), "inferred", "waits for");
        }
      }
    }
    for (const object of seen.objects) {
      if (!object.waiters?.length) continue;
      const holders = holderIn(object);
      if (!holders.length && !inCircle.has(`o${object.address}`)) continue;
      const isJoin = object.kind === "join";
      const at = isJoin && holders.length === 1 ? null : node(`o${object.address}`, "lock", objectName(object.address),
        words(object.state ?? ""), () => show(`o${object.address}`));
      const far = (pid, lwp) => node(`p${pid}.${lwp}`, "process", `process ${pid}`, `thread ${lwp}`, () => {});
      const to = at ?? threadNode(holders[0].lwp);
      const folded = [];
      for (const waiter of object.waiters) {
        if (waiter.pid !== null && waiter.pid !== undefined) edge(far(waiter.pid, waiter.lwp), to, waiter.evidence, "waits");
        else if (matters.has(waiter.lwp) || holds.has(waiter.lwp) || object.waiters.length <= 3)
          edge(threadNode(waiter.lwp), to, waiter.evidence, isJoin ? "waits for its end" : "waits");
        else folded.push(waiter.lwp);
      }
      if (folded.length) {
        const id = node(`f${object.address}`, "thread", `${folded.length} threads`, "wait", () => toThread(folded[0]));
        edge(id, to, "recorded", "wait");
      }
      if (at) {
        for (const holder of holders) {
          const who = holder.pid !== null && holder.pid !== undefined ? far(holder.pid, holder.lwp) : threadNode(holder.lwp);
          edge(at, who, holder.evidence, holder.evidence === "recorded" ? "held by" : `held by (${holder.evidence})`);
        }
      }
    }
    for (const thread of seen.threads) {
      const partners = thread.waits_outside?.partners ?? [];
      if (thread.lwp === null || !partners.length) continue;
      for (const partner of partners.slice(0, 6)) {
        const name = partner.name ? `${partner.name} (${partner.pid})` : `process ${partner.pid}`;
        const to = node(`p${partner.pid}.${partner.lwp ?? ""}`, "process", name, partner.lwp ? `thread ${partner.lwp}` : "process", () => {});
        edge(threadNode(thread.lwp), to, partner.evidence, words(thread.waits_outside.kind));
      }
    }
    if (!edges.length) return;
    // What cannot be drawn is said.
    const MOST = 160;
    const kept = new Set([...nodes.keys()].sort((a, b) => inCircle.has(b) - inCircle.has(a)).slice(0, MOST));
    const left = nodes.size - kept.size;
    const drawn = edges.filter((it) => kept.has(it.from) && kept.has(it.to));

    // Who waits stands left of what it waits for. Members of a circle share the columns on the right.
    const next = new Map([...kept].map((id) => [id, []]));
    drawn.forEach((it) => next.get(it.from).push(it.to));
    const depth = new Map();
    const before = new Map([...kept].map((id) => [id, []]));
    drawn.forEach((it) => before.get(it.to).push(it.from));
    const leadsBack = (id) => {
      const met = new Set(next.get(id)), open = [...met];
      while (open.length) for (const to of next.get(open.pop())) if (!met.has(to)) { met.add(to); open.push(to); }
      return met.has(id);
    };
    const rings = new Set([...kept].filter(leadsBack));
    const isRing = (id) => rings.has(id);
    const begin = [...kept].filter((id) => isRing(id) || next.get(id).length === 0);
    begin.forEach((id) => depth.set(id, 0));
    const queue = begin.length ? begin : [[...kept][0]];
    if (!begin.length) depth.set(queue[0], 0);
    for (let i = 0; i < queue.length; i++) {
      for (const id of before.get(queue[i])) if (!depth.has(id)) { depth.set(id, depth.get(queue[i]) + 1); queue.push(id); }
    }
    [...kept].filter((id) => !depth.has(id)).forEach((id) => depth.set(id, 0));
    const WIDTH = 200, HEIGHT = 46, GAP_X = 140, GAP_Y = 26;
    const ring = [...kept].filter(isRing);
    // Along the circle, in the order in which one waits for the other.
    const order = [];
    for (const first of ring) {
      for (let at = first; at && !order.includes(at); at = next.get(at).find(isRing)) order.push(at);
    }
    const place = new Map();
    const deepest = Math.max(0, ...depth.values());
    const others = [...kept].filter((id) => !isRing(id));
    const columns = ring.length ? deepest : deepest + 1;
    const column = (id) => deepest - depth.get(id);
    // Two columns, there and back, so that a circle looks like one.
    const half = Math.ceil(order.length / 2);
    order.forEach((id, index) => {
      const back = index >= half;
      const row = back ? order.length - 1 - index : index;
      place.set(id, [(columns + (back ? 1 : 0)) * (WIDTH + GAP_X) + 20, row * (HEIGHT + GAP_Y) * 1.4 + 20]);
    });
    // Beside what it waits for, where there is room.
    const rows = new Map();
    for (const id of others.sort((a, b) => depth.get(a) - depth.get(b))) {
      const at = depth.get(id) === 0 && ring.length ? columns + 2 : column(id);
      const beside = next.get(id).map((to) => place.get(to)?.[1]).find((y) => y !== undefined) ?? 20;
      const row = Math.max(rows.get(at) ?? 0, Math.floor((beside - 20) / (HEIGHT + GAP_Y)));
      rows.set(at, row + 1);
      place.set(id, [at * (WIDTH + GAP_X) + 20, row * (HEIGHT + GAP_Y) + 20]);
    }
    const right = Math.max(...[...place.values()].map(([x]) => x)) + WIDTH + 20;
    const bottom = Math.max(...[...place.values()].map(([, y]) => y)) + HEIGHT + 20;
    const svg = make("svg", { width: right, height: bottom, viewBox: `0 0 ${right} ${bottom}`, role: "group", "aria-label": "Who waits for whom" });
    svg.append(make("defs", {}, make("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
      make("path", { d: "M0 0 L8 4 L0 8 z", fill: "context-stroke" }))));
    for (const it of drawn) {
      const [ax, ay] = place.get(it.from), [bx, by] = place.get(it.to);
      const leftward = bx < ax, same = bx === ax;
      const x1 = same ? ax + WIDTH / 2 : leftward ? ax : ax + WIDTH, x2 = same ? bx + WIDTH / 2 : leftward ? bx + WIDTH : bx;
      const y1 = same ? (by > ay ? ay + HEIGHT : ay) : ay + HEIGHT / 2, y2 = same ? (by > ay ? by : by + HEIGHT) : by + HEIGHT / 2;
      const circle = isRing(it.from) && isRing(it.to) ? " circle" : "";
      svg.append(make("path", { class: `edge ${it.evidence}${circle}`, d: `M${x1} ${y1} L${x2} ${y2}`, "marker-end": "url(#arrow)" }));
      svg.append(make("text", { class: "small label", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, "text-anchor": "middle" }, it.label));
    }
    const cut = (title) => (title.length > 24 ? `${title.slice(0, 22)}..` : title);
    for (const id of kept) {
      const it = nodes.get(id), [x, y] = place.get(id);
      const open = (event) => { if (event.type === "click" || event.key === "Enter" || event.key === " ") { event.preventDefault(); it.onOpen(); } };
      svg.append(make("g", { class: `node ${it.kind}${inCircle.has(id) ? " circle" : ""}`, tabindex: 0, role: "button", "aria-label": `${it.title}, ${it.small}`,
        onclick: open, onkeydown: open },
        make("title", {}, it.title),
        make("rect", { x, y, width: WIDTH, height: HEIGHT, rx: it.kind === "lock" ? 2 : 12 }),
        make("text", { x: x + 12, y: y + 20 }, cut(it.title)),
        make("text", { class: "small", x: x + 12, y: y + 36 }, it.small)));
    }
    section("Who waits for whom", make("p", { class: "dim" },
      "Solid lines are recorded by the lock or the kernel, dashed ones follow from that, dotted ones are inferred."),
      make("div", { class: "graph" }, svg), left > 0 ? make("p", { class: "dim" }, `${left} more are not drawn; the tables have them.`) : null);
  };

  // ---- tables ----
  const STEP = 500;
  const table = (columns, all, options) => {
    const state = { by: null, down: false, query: "", shown: STEP, rows: all };
    const body = make("tbody");
    const more = make("button", { class: "plain", type: "button", onclick: () => { state.shown += STEP; fill(); } });
    const count = make("span", { class: "dim", role: "status" });
    const search = make("input", { type: "search", placeholder: options.search, "aria-label": options.search,
      oninput: () => { state.query = search.value.toLowerCase(); state.shown = STEP; fill(); } });
    const heads = columns.map((column, index) => make("th", { scope: "col", class: column.number ? "number" : "" },
      make("button", { type: "button", onclick: () => {
        state.down = state.by === index ? !state.down : false;
        state.by = index;
        heads.forEach((head) => head.removeAttribute("aria-sort"));
        heads[index].setAttribute("aria-sort", state.down ? "descending" : "ascending");
        fill();
      } }, column.title)));
    const searched = new Map();
    const textOf = (row) => {
      if (!searched.has(row)) searched.set(row, options.text(row).toLowerCase());
      return searched.get(row);
    };
    const fill = () => {
      let rows = state.query ? all.filter((row) => textOf(row).includes(state.query)) : [...all];
      if (state.by !== null) {
        const of = columns[state.by].sort ?? columns[state.by].cell;
        const compare = (a, b) => {
          const [x, y] = [of(a), of(b)];
          return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        };
        rows.sort((a, b) => (state.down ? -compare(a, b) : compare(a, b)));
      }
      state.rows = rows;
      body.replaceChildren(...rows.slice(0, state.shown).map(makeRow));
      count.textContent = rows.length === all.length ? `${all.length}` : `${rows.length} of ${all.length}`;
      more.hidden = rows.length <= state.shown;
      more.textContent = `Show more (${rows.length - state.shown} left)`;
    };
    const makeRow = (row) => {
      const cells = columns.map((column) => make("td", { class: column.number ? "number" : column.wide ? "wide" : "" }, String(column.cell(row))));
      // The row takes the focus when something leads to it.
      const line = make("tr", { id: options.id(row), tabindex: -1 }, ...cells);
      if (!options.detail) return line;
      const button = make("button", { class: "row", type: "button", "aria-expanded": "false" }, cells[0].textContent);
      cells[0].replaceChildren(button);
      line.dataset.open = "no";
      line.addEventListener("click", () => {
        const opens = line.dataset.open === "no";
        line.dataset.open = opens ? "yes" : "no";
        button.setAttribute("aria-expanded", String(opens));
        line.classList.toggle("open", opens);
        if (opens) line.after(make("tr", { class: "stack" }, make("td", { colspan: columns.length }, ...[options.detail(row)].flat())));
        else line.nextSibling.remove();
      });
      return line;
    };
    fill();
    return {
      element: make("div", {}, make("div", { class: "bar" }, search, count, ...(options.extra ?? [])),
        make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": options.search.replace("Search", "Table of") }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)), more),
      // Sees to it that a row is in the table.
      reveal: (is) => {
        if (!state.rows.some(is)) { search.value = ""; state.query = ""; fill(); }
        const at = state.rows.findIndex(is);
        if (at >= state.shown) { state.shown = at + 1; fill(); }
      },
    };
  };

  const cpu = (thread) => (thread.cpu ? thread.cpu.user_ms + thread.cpu.system_ms : 0);
  const threadTable = table([
    { title: "LWP", number: true, cell: (it) => it.lwp ?? "-", sort: (it) => it.lwp ?? 0 },
    { title: "Name", cell: (it) => it.name ?? "-" },
    { title: "State", cell: (it) => words(it.state) + (it.stop ? `, ${words(it.stop.kind)}` : "") },
    { title: "CPU", number: true, cell: (it) => (it.cpu ? age(cpu(it)) : "-"), sort: cpu },
    { title: "Waits for", wide: true, cell: waitsFor },
    { title: "Since", number: true, cell: (it) => age(it.waits_for?.since_ms), sort: (it) => it.waits_for?.since_ms ?? 0 },
    { title: "Holds", wide: true, cell: (it) => it.holds.slice(0, 8).map((held) => objectName(held.address)).join(", ") + (it.holds.length > 8 ? ", .." : "") },
    { title: "Began in", cell: (it) => it.start_function ?? "-" },
  ], seen.threads, {
    search: "Search threads, functions, locks",
    id: (it) => `t${it.lwp}`,
    text: (it) => [it.lwp, it.name, it.state, waitsFor(it), it.start_function, ...it.frames.map(frameText)].join(" "),
    detail: (it) => stackText(it.frames),
  });
  const threads = { reveal: (lwp) => threadTable.reveal((it) => it.lwp === lwp) };
  drawGraph();

  if (seen.groups?.length) {
    section("What the threads do", make("ul", {}, ...seen.groups.map((group) => make("li", {},
      make("b", {}, `${group.threads.length} ${group.threads.length === 1 ? "thread" : "threads"}`),
      ` ${group.what}${group.oldest_ms ? `, the longest for ${age(group.oldest_ms)}` : ""} `,
      ...group.threads.slice(0, 3).map(chip), group.threads.length > 3 ? `and ${group.threads.length - 3} more` : ""))));
  }

  // Equal stacks once, the largest group first.
  const groups = new Map();
  for (const thread of seen.threads) {
    const key = `${words(thread.state)}: ${waitsFor(thread) ? waitsFor(thread).replace(/, held by.*/, "") : "runs"}\n${stackText(thread.frames)}`;
    groups.set(key, [...(groups.get(key) ?? []), thread.lwp]);
  }
  const sorted = [...groups].sort((a, b) => b[1].length - a[1].length);
  const FOLDED = 200;
  section("Stacks", make("p", { class: "dim" }, "Threads with equal stacks are shown once."),
    ...sorted.slice(0, FOLDED).map(([key, lwps], index) => {
      const [what, ...frames] = key.split("\n");
      return make("details", index < 3 ? { open: "" } : {}, make("summary", {}, make("b", {}, `${lwps.length} ${lwps.length === 1 ? "thread" : "threads"}`), ` ${what}`),
        make("pre", {}, frames.join("\n")), make("p", {}, ...lwps.slice(0, CHIPS).filter((lwp) => lwp !== null).map(chip), lwps.length > CHIPS ? `and ${lwps.length - CHIPS} more` : ""));
    }), sorted.length > FOLDED ? make("p", { class: "dim" }, `${sorted.length - FOLDED} more stacks: see the threads.`) : null);

  section("Threads", threadTable.element);

  if (seen.tasks?.length) {
    tasks = table([
      { title: "Task", number: true, cell: (it) => it.id },
      { title: "State", cell: (it) => words(it.state) },
      { title: "Waits for", wide: true, cell: (it) => it.wait?.reason ?? "" },
      { title: "LWP", number: true, cell: (it) => it.carried_by ?? "" },
    ], seen.tasks, {
      search: "Search tasks",
      id: (it) => `k${it.id}`,
      text: (it) => [it.id, it.state, it.wait?.reason, ...(it.frames ?? []).map(frameText)].join(" "),
      detail: (it) => stackText(it.frames ?? []) + (it.created_by ? `\nmade by ${frameText(it.created_by)}` : ""),
    });
    section("Tasks", tasks.element);
  }

  // ---- locks ----
  const BAR = 22, HIGH = 60;
  // How many waits were how long: a bar for each length.
  const histogram = (buckets) => {
    if (!buckets?.length) return null;
    const most = Math.max(...buckets.map((it) => it.waits));
    const svg = make("svg", { class: "histogram", width: buckets.length * BAR * 3 + 20, height: HIGH + 40, role: "img",
      "aria-label": `Waits by length: ${buckets.map((it) => `${it.waits} up to ${time(it.up_to_ns)}`).join(", ")}` });
    buckets.forEach((it, index) => {
      const x = index * BAR * 3 + 10, high = Math.max(1, (it.waits / most) * HIGH), middle = x + BAR * 1.4;
      svg.append(make("rect", { x, y: HIGH + 16 - high, width: BAR * 2.8, height: high }),
        make("text", { x: middle, y: HIGH + 12 - high, "text-anchor": "middle" }, `${it.waits}`),
        make("text", { x: middle, y: HIGH + 32, "text-anchor": "middle" }, `<${time(it.up_to_ns)}`));
    });
    return make("div", { class: "graph" }, svg);
  };
  // Uses, waits and the time waited, of whatever kind.
  const counted = (stats) => {
    if (!stats) return null;
    const sum = (...names) => names.reduce((all, name) => all + (stats[name] ?? 0), 0);
    const sides = [stats.read, stats.write].filter(Boolean);
    const of = (name) => sides.reduce((all, side) => all + side[name], 0);
    const isCond = stats.signal !== undefined;
    return {
      uses: sides.length ? of("lock") : stats.lock ?? sum("wait", "timedwait"),
      waits: sides.length ? of("sleep") : isCond ? sum("wait", "timedwait") : sum("sleep"),
      waited: sides.length ? of("sleep_time_ns") : isCond ? sum("wait_sleep_time_ns", "timedwait_sleep_time_ns") : sum("sleep_time_ns"),
    };
  };
  const statistics = (stats) => {
    if (!stats) return [];
    const line = (name, it) => `${name}: ${Object.entries(it).filter(([, value]) => typeof value === "number" && value > 0)
      .map(([key, value]) => (key.endsWith("_ns") ? `${words(key.slice(0, -3))} ${time(value)}` : `${words(key)} ${value}`)).join(", ") || "nothing"}`;
    const lines = [line("counted", stats)];
    for (const side of ["read", "write"]) if (stats[side]) lines.push(line(side, stats[side]));
    const held = stats.hold_time;
    if (held?.total_ns) lines.push(`held for ${time(held.total_ns)} in all${held.estimated ? " (estimated)" : ""}`);
    if (stats.contention) lines.push(`half of the waits took up to ${time(stats.contention.p50_ns)}, 99 of 100 up to ${time(stats.contention.p99_ns)}`);
    return lines;
  };
  if (seen.objects.length) {
    const people = (list) => list.slice(0, 8).map((it) => `${it.pid ? `${it.pid}/` : ""}${it.lwp ?? "?"}${it.evidence === "recorded" ? "" : ` (${it.evidence})`}`).join(", ") + (list.length > 8 ? `, .. ${list.length} in all` : "");
    const ofTasks = (list) => (list ?? []).slice(0, 8).map((it) => `task ${it.task} (${it.evidence})`).join(", ") + ((list ?? []).length > 8 ? `, .. ${list.length} in all` : "");
    const holders = (it) => [people(it.holders), ofTasks(it.holding_tasks)].filter(Boolean).join(", ");
    const waiters = (it) => it.waiters.length + (it.waiting_tasks ?? []).length;
    const isCounted = seen.objects.some((it) => it.stats);
    const number = (title, of, shown = String) => ({ title, number: true, cell: (it) => (it.stats ? shown(of(counted(it.stats))) : "-"),
      sort: (it) => (it.stats ? of(counted(it.stats)) : -1) });
    section("Locks", table([
      { title: "Address", cell: (it) => it.address },
      { title: "Kind", cell: (it) => words(it.kind) },
      { title: "Name", wide: true, cell: (it) => it.name ?? "" },
      { title: "State", cell: (it) => words(it.state) },
      { title: "Held by", wide: true, cell: holders },
      { title: "Waiters", number: true, cell: waiters, sort: waiters },
      ...(isCounted ? [number("Uses", (it) => it.uses), number("Waits", (it) => it.waits), number("Waited", (it) => it.waited, time)] : []),
      { title: "Known", cell: (it) => it.evidence },
    ], seen.objects, {
      search: "Search locks",
      id: (it) => `o${it.address}`,
      text: (it) => [it.address, it.kind, it.name, it.state, holders(it)].join(" "),
      detail: (it) => {
        const lines = it.holders.map((holder) => `held by ${holder.pid ? `process ${holder.pid}, thread ${holder.lwp}` : holder.lwp === null ? "somebody" : threadName(holder.lwp)}`
          + ` (${holder.evidence}${holder.why ? `: ${holder.why}` : ""})${holder.status === "gone" ? ", which no longer exists" : ""}`);
        if (it.waiters.length) lines.push(`waiters: ${it.waiters.map((waiter) => threadName(waiter.lwp)).join(", ")}`);
        if (it.waiting_tasks?.length) lines.push(`waiting: ${ofTasks(it.waiting_tasks)}`);
        if (!waiters(it)) lines.push("nobody waits");
        return [[...lines, ...statistics(it.stats)].join("\n"), histogram(it.stats?.contention?.histogram) ?? ""];
      },
    }).element);
  }

  // ---- what was measured ----
  const site = (stack) => (stack ? frameText(stack.frames[stack.caller] ?? stack.frames[0] ?? { pc: "?" }) : "");
  if (contention) {
    const rate = (it) => (it.wait_ns + it.open_wait_ns) / Math.max(contention.seconds, 1e-9);
    const parts = [make("p", { class: "dim" }, `${contention.seconds.toFixed(1)} s counted. `
      + (contention.tracked ? (contention.tracked.pause_us === null ? "The agent was already active." : `The agent was injected: one thread was stopped for ${contention.tracked.pause_us} us.`) : ""))];
    if (contention.locks.length) {
      parts.push(table([
        { title: "Lock", wide: true, cell: (it) => it.name ?? it.address },
        { title: "Kind", cell: (it) => words(it.kind) },
        { title: "Waited per s", number: true, cell: (it) => time(rate(it)), sort: rate },
        { title: "Waits", number: true, cell: (it) => `${it.waits}${it.open_waits ? ` +${it.open_waits} open` : ""}`, sort: (it) => it.waits + it.open_waits },
        { title: "99 of 100 up to", number: true, cell: (it) => (it.stats.contention ? time(it.stats.contention.p99_ns) : "-"), sort: (it) => it.stats.contention?.p99_ns ?? 0 },
        { title: "Waited in", wide: true, cell: (it) => site(it.waited_in[0]) },
        { title: "Taken in", wide: true, cell: (it) => (it.held_in[0] ? frameText(it.held_in[0].frame) : "") },
      ], contention.locks, {
        search: "Search contended locks",
        id: (it) => `c${it.address}`,
        text: (it) => [it.name, it.address, it.kind, ...it.waited_in.map(site)].join(" "),
        detail: (it) => {
          const lines = statistics(it.stats);
          it.waited_in.slice(0, 5).forEach((stack) => lines.push(`waited ${time(stack.time_ns)} in`, ...stack.frames.map((frame) => `    ${frameText(frame)}`)));
          it.held_in.slice(0, 5).forEach((held) => lines.push(`others waited ${time(held.time_ns)} for what was taken in ${frameText(held.frame)}`));
          it.holders_did.slice(0, 5).forEach((did) => lines.push(`its holder was seen ${did.looks} times: ${words(did.what)}${did.call ? ` in ${did.call}` : ""}${did.lock ? ` for ${objectName(did.lock)}` : ""}`));
          return [lines.join("\n"), histogram(it.stats.contention?.histogram) ?? ""];
        },
      }).element);
    } else parts.push(make("p", {}, "No thread waited for a lock that can be counted."));
    if (contention.sampled.length) {
      parts.push(make("h3", {}, "Sampled"), make("p", { class: "dim" }, `Locks that do not go through the C library, in ${contention.looks} looks.`), table([
        { title: "Lock", wide: true, cell: (it) => it.name ?? it.address },
        { title: "Kind", cell: (it) => `${words(it.family)} ${words(it.kind)}` },
        { title: "Seen waited for", number: true, cell: (it) => `${Math.round((100 * it.looks) / Math.max(1, contention.looks))}%`, sort: (it) => it.looks },
        { title: "Threads waiting", number: true, cell: (it) => (it.samples / Math.max(1, contention.looks)).toFixed(1), sort: (it) => it.samples },
        { title: "Waited in", wide: true, cell: (it) => it.sites[0]?.[0] ?? "" },
      ], contention.sampled, { search: "Search sampled locks", id: (it) => `s${it.address}`, text: (it) => [it.name, it.address, it.family].join(" ") }).element);
    }
    section("Contention", ...parts);
  }

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
  if (profile) {
    const what = make("p", { class: "dim" }, `${profile.samples} samples of running threads in ${(profile.duration_ms / 1000).toFixed(1)} s. A click on a frame widens it, a click on "all" brings all back.`);
    if (!profile.samples) section("Profile", make("p", {}, "No thread ran while samples were taken."));
    else section("Profile", what, ...flames(profile.stacks ?? [], "samples"), table([
      { title: "Function", wide: true, cell: (it) => it.name ?? "??" },
      { title: "Module", cell: (it) => it.module ?? "" },
      { title: "Samples", number: true, cell: (it) => it.samples, sort: (it) => it.samples },
      { title: "Share", number: true, cell: (it) => `${it.percent.toFixed(1)} %`, sort: (it) => it.percent },
    ], profile.functions, { search: "Search functions", id: (it) => `f${profile.functions.indexOf(it)}`, text: (it) => `${it.name} ${it.module}` }).element);
  }

  if (seen.strangers?.length) {
    section("Threads of other processes", ...seen.strangers.map((it) => make("details", { open: "" },
      make("summary", {}, make("b", {}, `${it.process ?? "process"} (${it.pid})`), ` thread ${it.thread.lwp ?? "?"}: ${waitsFor(it.thread) || words(it.thread.state)}`),
      make("pre", {}, stackText(it.thread.frames)))));
  }

  if (seen.gaps.length) {
    section("Not seen", make("ul", {}, ...seen.gaps.map((gap) => make("li", {}, `${gap.what}: ${gap.why}`))));
  }
  const link = (name, content, words) => make("li", {}, make("a", { download: `tglass-${seen.target.pid}${name}.json`,
    href: URL.createObjectURL(new Blob([content], { type: "application/json" })) }, `Save ${words} as JSON`));
  section("Data", make("ul", {}, link("", text, `what was seen (${seen.schema}, as tglass why --json prints it)`),
    contention ? link("-contention", contentionText, "the contention (as tglass contend --json prints it)") : null,
    profile ? link("-profile", profileText, "the profile (as tglass profil --json prints it)") : null));
  // What is folded would be missing on paper.
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((it) => { it.open = true; }));
  document.documentElement.dataset.shown = "yes";
})();
