// A table that can be searched, sorted and opened. It shows the first rows; search and order go over all.
const FIRST = 100, STEP = 500;
const table = (columns, all, options) => {
  const state = { by: null, down: false, query: "", shown: FIRST, rows: all };
  const body = make("tbody");
  const more = make("button", { class: "plain", type: "button", onclick: () => { state.shown += STEP; fill(); } });
  const count = make("span", { class: "dim", role: "status" });
  const search = make("input", { type: "search", placeholder: options.search, "aria-label": options.search,
    oninput: () => { state.query = search.value.toLowerCase(); state.shown = FIRST; fill(); } });
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
    more.textContent = `Show more (${rows.length - state.shown} of ${rows.length} left)`;
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
    search: (text) => { search.value = text; search.dispatchEvent(new Event("input")); },
    // Sees to it that a row is in the table.
    reveal: (is) => {
      if (!state.rows.some(is)) { search.value = ""; state.query = ""; fill(); }
      const at = state.rows.findIndex(is);
      if (at >= state.shown) { state.shown = at + 1; fill(); }
    },
  };
};
