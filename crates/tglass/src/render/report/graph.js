// The graph of waits: an edge leads from who waits to what it waits for, and from a lock to who holds it.
const BOX_WIDE = 212, BOX_HIGH = 46, BOX_GAP_X = 112, BOX_GAP_Y = 24, RING_GAP_Y = 54;
const LETTERS = 24, SMALL_LETTERS = 28;

// The parts of a graph that have nothing to do with each other.
const partsOf = (ids, edges) => {
  const beside = new Map(ids.map((id) => [id, []]));
  for (const it of edges) { beside.get(it.from).push(it.to); beside.get(it.to).push(it.from); }
  const parts = [], met = new Set();
  for (const first of ids) {
    if (met.has(first)) continue;
    const part = [first];
    met.add(first);
    for (let i = 0; i < part.length; i++) for (const id of beside.get(part[i])) if (!met.has(id)) { met.add(id); part.push(id); }
    parts.push(part);
  }
  return parts;
};

// As many boxes as can be looked at: hangs first, then where most wait. A part is left out as a whole where others are drawn.
const worthDrawing = (nodes, edges, marked, most) => {
  const weight = (part) => part.reduce((sum, id) => sum + (marked.has(id) ? 1e6 : 0) + (nodes.get(id).number ?? 1), 0);
  const parts = partsOf([...nodes.keys()], edges).map((part) => [part, weight(part)]).sort((a, b) => b[1] - a[1]);
  const kept = new Map();
  for (const [part] of parts) {
    if (kept.size && kept.size + part.length > most) break;
    // One that is too large by itself is drawn as far as it goes.
    const some = [...part].sort((a, b) => marked.has(b) - marked.has(a)).slice(0, most);
    some.forEach((id) => kept.set(id, nodes.get(id)));
  }
  return kept;
};

// Where each box stands, as columns and heights. Parts of the graph that have nothing to do with each other stand below each other.
const placed = (ids, edges) => {
  const next = new Map(ids.map((id) => [id, []])), before = new Map(ids.map((id) => [id, []]));
  for (const it of edges) { next.get(it.from).push(it.to); before.get(it.to).push(it.from); }
  const leadsBack = (id) => {
    const met = new Set(next.get(id)), open = [...met];
    while (open.length) for (const to of next.get(open.pop())) if (!met.has(to)) { met.add(to); open.push(to); }
    return met.has(id);
  };
  const rings = new Set(ids.filter(leadsBack));
  const places = new Map();
  let top = 0;
  for (const part of partsOf(ids, edges)) top = placePart(part, { next, before, rings, places, top }) + BOX_GAP_Y;
  // The leftmost column is the first.
  const left = Math.min(...[...places.values()].map((it) => it.column));
  for (const it of places.values()) it.column -= left;
  return { places, rings, height: top };
};

// Places one part from `top` on; where it ends.
const placePart = (part, { next, before, rings, places, top }) => {
  // A circle stands in two columns, there and back, so that it looks like one. Who waits for its members stands beside them.
  const order = [];
  for (const first of part.filter((id) => rings.has(id))) {
    for (let at = first; at && !order.includes(at); at = next.get(at).find((id) => rings.has(id))) order.push(at);
  }
  const half = Math.ceil(order.length / 2);
  order.forEach((id, index) => {
    const back = index >= half;
    places.set(id, { column: back ? 1 : 0, y: top + (back ? order.length - 1 - index : index) * (BOX_HIGH + RING_GAP_Y), side: back ? 1 : -1 });
  });
  const free = new Map();
  const put = (id, column, side, y) => {
    const at = Math.max(free.get(column) ?? top, y);
    free.set(column, at + BOX_HIGH + BOX_GAP_Y);
    places.set(id, { column, y: at, side });
  };
  if (!order.length) part.filter((id) => !next.get(id).length).forEach((id) => put(id, 0, -1, top));
  if (!part.some((id) => places.has(id))) put(part[0], 0, -1, top);
  const queue = part.filter((id) => places.has(id));
  for (let i = 0; i < queue.length; i++) {
    const at = places.get(queue[i]);
    for (const id of before.get(queue[i])) if (!places.has(id)) { put(id, at.column + at.side, at.side, at.y); queue.push(id); }
    // What a member of a circle waits for besides.
    for (const id of next.get(queue[i])) if (!places.has(id)) { put(id, at.column + (order.length ? at.side : 1), at.side, at.y); queue.push(id); }
  }
  return Math.max(...part.map((id) => places.get(id).y)) + BOX_HIGH;
};

// The picture. `marked` are the members of hangs.
const graphOf = (nodes, edges, marked) => {
  const { places, rings, height } = placed([...nodes.keys()], edges);
  const x = (id) => places.get(id).column * (BOX_WIDE + BOX_GAP_X) + 20, y = (id) => places.get(id).y + 20;
  const right = Math.max(...[...nodes.keys()].map(x)) + BOX_WIDE + 20, bottom = height + 20;
  const svg = make("svg", { width: right, height: bottom, viewBox: `0 0 ${right} ${bottom}`, role: "group", "aria-label": "Who waits for whom" });
  svg.append(make("defs", {}, make("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 11, markerHeight: 11,
    markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, make("path", { d: "M0 0 L8 4 L0 8 z", fill: "context-stroke" }))));
  const labels = [];
  for (const it of edges) {
    const [ax, ay, bx, by] = [x(it.from), y(it.from), x(it.to), y(it.to)];
    // Two that lead there and back do not lie on each other.
    const aside = edges.some((other) => other.from === it.to && other.to === it.from) ? (it.from < it.to ? -11 : 11) : 0;
    const same = ax === bx, leftward = bx < ax;
    const down = by > ay;
    const x1 = same ? ax + BOX_WIDE / 2 + aside : leftward ? ax : ax + BOX_WIDE, x2 = same ? bx + BOX_WIDE / 2 + aside : leftward ? bx + BOX_WIDE : bx;
    const y1 = same ? (down ? ay + BOX_HIGH : ay) : ay + BOX_HIGH / 2 + aside, y2 = same ? (down ? by : by + BOX_HIGH) : by + BOX_HIGH / 2 + aside;
    const circle = rings.has(it.from) && rings.has(it.to) ? " circle" : "";
    svg.append(make("path", { class: `edge ${it.evidence}${circle}`, d: `M${x1} ${y1} L${x2} ${y2}`, "marker-end": "url(#arrow)" }));
    const [middle, high] = [(x1 + x2) / 2, (y1 + y2) / 2];
    labels.push(make("text", same ? { class: "small label", x: middle + 8, y: high + 3 }
      : { class: "small label", x: middle, y: aside > 0 ? high + 12 : high - 5, "text-anchor": "middle" }, it.label));
  }
  const cut = (text, most) => ([...text].length > most ? `${[...text].slice(0, most - 2).join("")}..` : text);
  for (const [id, it] of nodes) {
    const open = (event) => { if (event.type === "click" || event.key === "Enter" || event.key === " ") { event.preventDefault(); it.onOpen(); } };
    svg.append(make("g", { class: `node ${it.kind}${marked.has(id) ? " circle" : ""}`, tabindex: 0, role: "button",
      "aria-label": `${cut(it.title, LETTERS)} ${cut(it.small, SMALL_LETTERS)}`, onclick: open, onkeydown: open },
      make("title", {}, `${it.title}\n${it.small}`),
      make("rect", { x: x(id), y: y(id), width: BOX_WIDE, height: BOX_HIGH, rx: it.kind === "lock" ? 2 : 12 }),
      make("text", { x: x(id) + 12, y: y(id) + 20 }, `${cut(it.title, LETTERS)} `),
      make("text", { class: "small", x: x(id) + 12, y: y(id) + 36 }, cut(it.small, SMALL_LETTERS))));
  }
  svg.append(...labels);
  return svg;
};
