// Shows the snapshot that this file carries. Whatever a name holds is text: nothing here parses markup.
(async () => {
  const rest = document.getElementById("rest");
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
  const seen = JSON.parse(shown(text));
  const contention = contentionText ? JSON.parse(shown(contentionText)) : null;
  const profile = profileText ? JSON.parse(shown(profileText)) : null;
  // What each finding is called.
  const headings = document.getElementById("headings").textContent.trim().split("\n");

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
  // Where a thread is in its program: the innermost function that is none of a C library or of a language's own.
  const ofLibc = /^(libc[.-]|libpthread[.-]|ld-|ld\.)/, ofLanguage = /^(<*(std|core|alloc)::|__gthread|(runtime|sync|syscall|internal[^.]*)\.)/;
  const place = (thread) => {
    const own = (thread?.frames ?? []).find((it) => it.function && !ofLibc.test(it.module ?? "") && !ofLanguage.test(it.function));
    if (!own) return words(thread?.state ?? "");
    return `in ${own.function}${own.file ? ` ${own.file.split("/").pop()}:${own.line ?? "?"}` : ""}`;
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
  const toTask = (id) => { tasks?.reveal((it) => it.id === id); show(`k${id}`); };
  const taskChip = (id) => make("button", { class: "chip", type: "button", onclick: () => toTask(id) }, `task ${id}`);
  const CHIPS = 12, CARDS = 30;
  // A chain that a worse finding tells of, too, is told once.
  const isTold = (it) => seen.findings.some((other) => other !== it && other.text.startsWith(it.text));
  const findings = seen.findings.filter((it) => !isTold(it));
  // Where the members of a hang are: what a person asks next.
  const stacksOf = (finding) => {
    if (!isHang(finding.kind)) return null;
    const members = finding.threads.map((lwp) => [threadName(lwp), threadOf.get(lwp)?.frames]);
    const tasksOf = (finding.tasks ?? []).map((id) => [`task ${id}`, taskOf.get(id)?.frames]);
    const all = [...members, ...tasksOf].filter(([, frames]) => frames?.length).slice(0, 4);
    return all.length ? make("details", all.flatMap(([, frames]) => frames).length <= 16 ? { open: "" } : {}, make("summary", {}, "Where they are"),
      ...all.flatMap(([name, frames]) => [make("p", {}, make("b", {}, name)), make("pre", {}, stackText(frames))])) : null;
  };
  if (findings.length) {
    section("Findings", ...findings.slice(0, CARDS).map((finding) => {
      const all = [...finding.threads.map((lwp) => () => chip(lwp)), ...(finding.tasks ?? []).map((id) => () => taskChip(id))];
      const some = all.slice(0, CHIPS).map((it) => it());
      const more = all.length > CHIPS ? `and ${all.length - CHIPS} more` : "";
      const behind = finding.behind.length ? make("p", { class: "dim" }, `${finding.behind.length} more wait behind: `,
        ...finding.behind.slice(0, CHIPS).map(chip), finding.behind.length > CHIPS ? `and ${finding.behind.length - CHIPS} more` : "") : null;
      const grade = isHang(finding.kind) ? (finding.certainty === "possible" ? "fair" : "bad") : "fair";
      return make("div", { class: `card ${grade}` },
        make("p", {}, make("b", { class: "kind" }, headings[seen.findings.indexOf(finding)] ?? words(finding.kind)), ` (${finding.certainty})`),
        make("p", {}, finding.text), make("p", {}, ...some, more), behind, stacksOf(finding));
    }), findings.length > CARDS ? make("p", { class: "dim" }, `${findings.length - CARDS} more findings, the worst of which are above: the tables and the data have them.`) : null);
  }

  // ---- the graph of waits ----
  const weakest = (all) => ["inferred", "derived"].find((it) => all.includes(it)) ?? "recorded";
  const drawGraph = () => {
    const nodes = new Map(), edges = [];
    const node = (id, kind, title, small, onOpen, number = 1) => {
      if (!nodes.has(id)) nodes.set(id, { kind, title, small, onOpen, number });
      return id;
    };
    const edge = (from, to, evidence, label) => edges.push({ from, to, evidence, label });
    const threadNode = (lwp) => node(`t${lwp}`, "thread", threadName(lwp), threadOf.has(lwp) ? place(threadOf.get(lwp)) : "no longer exists", () => toThread(lwp));
    const taskNode = (id) => node(`k${id}`, "task", `task ${id}${taskOf.get(id)?.start_function ? `: ${taskOf.get(id).start_function}` : ""}`,
      taskOf.get(id)?.wait?.reason ?? words(taskOf.get(id)?.state ?? ""), () => toTask(id));
    const farNode = (pid, lwp, name) => {
      const known = (seen.strangers ?? []).find((it) => it.pid === pid && it.thread.lwp === lwp);
      return node(`p${pid}.${lwp ?? ""}`, "process", `${name ?? known?.process ?? "process"} (${pid})`, lwp ? `thread ${lwp}, other process` : "another process",
        () => show(`p${pid}.${lwp ?? ""}`));
    };
    const memberNode = (pid, lwp) => (pid === null || pid === undefined || pid === seen.target.pid ? threadNode(lwp) : farNode(pid, lwp));
    const objectNode = (object) => node(`o${object.address}`, "lock", objectName(object.address), words(object.state ?? ""), () => show(`o${object.address}`));
    // Many that wait for one object, and for whom nobody waits, are one box.
    const FOLD = 4;
    const fold = (id, kind, all, to, onOpen) => {
      edge(node(id, kind, `${all.length} ${kind}s`, "wait", onOpen, all.length), to, weakest(all.map((it) => it.evidence)), "wait");
    };

    for (const object of seen.objects) {
      const [waiting, holding] = [object.waiting_tasks ?? [], object.holding_tasks ?? []];
      if (!waiting.length || (!holding.length && !inCircle.has(`o${object.address}`) && !waiting.some((it) => inCircle.has(`k${it.task}`)))) continue;
      const at = objectNode(object);
      const folded = waiting.length >= FOLD ? waiting.filter((it) => !inCircle.has(`k${it.task}`)) : [];
      waiting.filter((it) => !folded.includes(it)).forEach((it) => edge(taskNode(it.task), at, it.evidence, "waits"));
      if (folded.length) fold(`g${object.address}`, "task", folded, at, () => toTask(folded[0].task));
      holding.forEach((it) => edge(at, taskNode(it.task), it.evidence, `held by (${it.evidence})`));
    }
    for (const task of seen.tasks ?? []) {
      for (const object of task.wait?.objects ?? []) {
        for (const id of object.woken_by ?? []) {
          if (inCircle.has(`k${task.id}`) && inCircle.has(`k${id}`)) edge(taskNode(task.id), taskNode(id), "inferred", "waits for");
        }
      }
    }

    const holderIn = (object) => (object.holders ?? []).filter((it) => it.lwp !== null);
    const holds = new Set(seen.objects.filter((it) => it.waiters?.length).flatMap((it) => holderIn(it).map((holder) => holder.lwp)));
    for (const object of seen.objects) {
      if (!object.waiters?.length) continue;
      const holders = holderIn(object);
      if (!holders.length && !inCircle.has(`o${object.address}`)) continue;
      const isJoin = object.kind === "join" && holders.length === 1;
      const to = isJoin ? threadNode(holders[0].lwp) : objectNode(object);
      const folded = [];
      for (const waiter of object.waiters) {
        if (waiter.pid !== null && waiter.pid !== undefined) edge(farNode(waiter.pid, waiter.lwp), to, waiter.evidence, "waits");
        else if (holds.has(waiter.lwp) || object.waiters.length < FOLD) edge(threadNode(waiter.lwp), to, waiter.evidence, isJoin ? "joins" : "waits");
        else folded.push(waiter);
      }
      if (folded.length) {
        fold(`f${object.address}`, "thread", folded, to, () => {
          threadTable.search(objectName(object.address).toLowerCase());
          toThread(folded[0].lwp);
        });
        if (folded.some((it) => inCircle.has(`t${it.lwp}`))) inCircle.add(`f${object.address}`);
      }
      if (isJoin) continue;
      for (const holder of holders) edge(to, memberNode(holder.pid, holder.lwp), holder.evidence, holder.evidence === "recorded" ? "held by" : `held by (${holder.evidence})`);
    }
    for (const thread of seen.threads) {
      if (thread.lwp === null) continue;
      for (const partner of (thread.waits_outside?.partners ?? []).slice(0, 6)) {
        edge(threadNode(thread.lwp), farNode(partner.pid, partner.lwp, partner.name), partner.evidence, words(thread.waits_outside.kind));
      }
    }
    // What the others of a circle of processes wait for is in the finding alone.
    for (const finding of seen.findings.filter((it) => it.kind === "process_circle")) {
      const ids = finding.members.filter((it) => it.lwp !== null).map((it) => memberNode(it.pid, it.lwp));
      ids.forEach((from, index) => {
        const to = ids[(index + 1) % ids.length];
        inCircle.add(from);
        if (from !== to && !edges.some((it) => it.from === from && it.to === to)) edge(from, to, "inferred", "waits for");
      });
    }
    if (!edges.length) return;
    // What cannot be drawn is said.
    const kept = worthDrawing(nodes, edges, inCircle, 60);
    const left = nodes.size - kept.size;
    const drawn = edges.filter((it) => kept.has(it.from) && kept.has(it.to));
    if (!drawn.length) return;
    section("Who waits for whom", make("p", { class: "dim" },
      "Solid lines are recorded by the lock or the kernel, dashed ones follow from that, dotted ones are inferred."),
      make("div", { class: "graph", tabindex: 0, role: "group", "aria-label": "Graph of waits" }, graphOf(kept, drawn, inCircle)),
      left > 0 ? make("p", { class: "dim" }, `${left} more are not drawn; the tables have them.`) : null);
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

  const GROUPS = 40;
  const since = (ms) => (ms ? `, the longest for ${age(ms)}` : "");
  const task = (it) => it.frames?.find((frame) => frame.function && !ofLanguage.test(frame.function))?.function;
  if (seen.task_groups?.length) {
    const groups = [...seen.task_groups].sort((a, b) => b.tasks.length - a.tasks.length);
    section("What the tasks do", make("ul", {}, ...groups.slice(0, GROUPS).map((group) => make("li", {},
      make("b", {}, `${group.tasks.length} ${group.tasks.length === 1 ? "task" : "tasks"} of ${group.runtime}`),
      ` ${group.reason ?? words(group.state)}${task(group) ? ` in ${task(group)}` : ""}${since(group.oldest_ms)} `,
      ...group.tasks.slice(0, 3).map(taskChip), group.tasks.length > 3 ? `and ${group.tasks.length - 3} more` : ""))),
      groups.length > GROUPS ? make("p", { class: "dim" }, `${groups.length - GROUPS} more groups: see the tasks.`) : null);
  }

  if (seen.groups?.length) {
    section("What the threads do", make("ul", {}, ...seen.groups.slice(0, GROUPS).map((group) => make("li", {},
      make("b", {}, `${group.threads.length} ${group.threads.length === 1 ? "thread" : "threads"}`),
      ` ${group.what}${since(group.oldest_ms)} `,
      ...group.threads.slice(0, 3).map(chip), group.threads.length > 3 ? `and ${group.threads.length - 3} more` : ""))),
      seen.groups.length > GROUPS ? make("p", { class: "dim" }, `${seen.groups.length - GROUPS} more groups: see the threads.`) : null);
  }

  // Equal stacks once, the largest group first.
  const groups = new Map();
  for (const thread of seen.threads) {
    const key = `${words(thread.state)}: ${waitsFor(thread) ? waitsFor(thread).replace(/, held by.*/, "") : "runs"}\n${stackText(thread.frames)}`;
    groups.set(key, [...(groups.get(key) ?? []), thread.lwp]);
  }
  const sorted = [...groups].sort((a, b) => b[1].length - a[1].length);
  const FOLDED = 60;
  section("Stacks", make("p", { class: "dim" }, "Threads with equal stacks are shown once."),
    ...sorted.slice(0, FOLDED).map(([key, lwps], index) => {
      const [what, ...frames] = key.split("\n");
      return make("details", index < 3 ? { open: "" } : {}, make("summary", {}, make("b", {}, `${lwps.length} ${lwps.length === 1 ? "thread" : "threads"}`), ` ${what}`),
        make("pre", {}, frames.join("\n")), make("p", {}, ...lwps.slice(0, CHIPS).filter((lwp) => lwp !== null).map(chip), lwps.length > CHIPS ? `and ${lwps.length - CHIPS} more` : ""));
    }), sorted.length > FOLDED ? make("p", { class: "dim" }, `${sorted.length - FOLDED} more stacks: see the threads.`) : null);

  section("Threads", threadTable.element);

  if (seen.tasks?.length) {
    const taskWaits = (it) => (it.wait ? `${it.wait.reason}${it.wait.descriptor ? ` fd ${it.wait.descriptor}` : ""}`
      + (it.wait.objects ?? []).slice(0, 3).map((object) => ` ${object.address}`).join("") : "");
    tasks = table([
      { title: "Task", number: true, cell: (it) => it.id },
      { title: "State", cell: (it) => words(it.state) },
      { title: "Waits for", wide: true, cell: taskWaits },
      { title: "Since", number: true, cell: (it) => age(it.wait?.since_ms), sort: (it) => it.wait?.since_ms ?? 0 },
      { title: "LWP", number: true, cell: (it) => it.carried_by ?? "" },
      { title: "Began in", wide: true, cell: (it) => it.start_function ?? it.name ?? "-" },
    ], seen.tasks, {
      search: "Search tasks",
      id: (it) => `k${it.id}`,
      text: (it) => [it.id, it.state, taskWaits(it), it.start_function, it.name, ...(it.frames ?? []).map(frameText)].join(" "),
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
    section("Threads of other processes", ...seen.strangers.map((it) => make("details", { open: "", id: `p${it.pid}.${it.thread.lwp ?? ""}`, tabindex: -1 },
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
