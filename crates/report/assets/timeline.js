// What each rank did when: computing, waiting, exchanging. Wheel or keys zoom, dragging moves.

const KINDS = ["computing", "waiting for another rank", "exchange under way"];
const LEFT = 62, TOP = 40;

/// Starts as times since the first, and what else drawing needs to know.
function readTrace(trace) {
  const e = trace.events, count = e.kind.length;
  const start = new Float64Array(count);
  let [at, end] = [0, 1];
  const begins = new Map();
  for (let k = 0; k < count; k += 1) {
    at += e.after[k];
    start[k] = at;
    end = Math.max(end, at + e.took[k]);
    if (e.kind[k] === 0 && !begins.has(e.epoch[k])) begins.set(e.epoch[k], at);
  }
  const ranks = [...new Set(e.rank)].sort((a, b) => a - b);
  return { ...trace, start, count, end, ranks, begins: [...begins].sort((a, b) => a[1] - b[1]) };
}

/// The second and third epoch: the first one also makes plans and fills caches.
function firstView({ begins, end }) {
  const at = (k) => (begins[k] ? begins[k][1] : null);
  return { from: at(1) !== null && begins.length > 2 ? at(1) : 0, to: at(3) ?? end };
}

function timelineSection(run, prefix) {
  if (!run.trace || !run.trace.events || !run.trace.events.kind.length) return null;
  const trace = readTrace(run.trace);
  const { end, ranks } = trace;
  const seen = kept.get(`${prefix}view`, null);
  const view = seen && seen[1] <= end ? { from: seen[0], to: seen[1] } : firstView(trace);
  const lane = Math.max(14, Math.min(34, 560 / ranks.length));
  const canvas = el("canvas", { class: "time", tabindex: 0, role: "img",
    "aria-label": `Timeline of ${counted(ranks.length, "rank", "ranks")} over ${duration(end / 1000)}. Plus and minus zoom, arrows move, Home and End go to the ends. The table below has the time of each phase.` });
  const readout = el("p", { class: "readout" });
  const rest = `${counted(trace.begins.length, "epoch is", "epochs are")} in this picture.`;
  const said = (text) => { readout.textContent = text || rest; };
  said(null);
  const draw = () => drawTimeline(canvas, trace, view, lane);
  const moveTo = (from, span) => { view.from = Math.min(Math.max(0, from), Math.max(0, end - span)); view.to = view.from + span; kept.set(`${prefix}view`, [view.from, view.to]); draw(); };
  const zoom = (factor, around) => {
    const span = Math.min(end, Math.max(10, (view.to - view.from) * factor));
    moveTo(around - (span * (around - view.from)) / (view.to - view.from), span);
  };
  const move = (by) => moveTo(view.from + by, view.to - view.from);
  const middle = () => (view.from + view.to) / 2;
  listenTo(canvas, { trace, view, lane, move, moveTo, zoom, middle, said });
  const button = (text, does) => el("button", { type: "button", onclick: does }, text);
  const part = section(`${prefix}timeline`, titled(run, "Timeline"),
    ofSeed(run, "What each rank did when, by the clock of its host. It begins with the second epoch, as the first one also prepares. Drag to move; click, then turn the wheel or press + and − to zoom."),
    legend(KINDS), canvas, readout, el("div", { class: "controls" },
      button("Zoom in", () => zoom(0.5, middle())), button("Zoom out", () => zoom(2, middle())), button("Show all", () => moveTo(0, end)),
      button(trace.left_out || trace.more ? "Save this part of the trace for Perfetto" : "Save the trace for Perfetto", () => saveTrace(run, trace.start))),
    trace.more ? el("p", { class: "lead" }, "Later epochs are not in this page while the run goes on; trace.json in the run folder has what was recorded of them.")
      : trace.left_out ? el("p", { class: "lead" }, `${whole(trace.left_out)} of ${whole(trace.left_out + trace.count)} events, those of later epochs, are not in this page; trace.json in the run folder has all that were recorded.`) : null,
    sharesOf(trace));
  part.start = draw;
  part.resize = draw;
  return part;
}

function drawTimeline(canvas, trace, view, lane) {
  const { events: e, start, count, ranks, names } = trace;
  const wide = canvas.clientWidth || 800, high = TOP + ranks.length * lane + 4, ratio = devicePixelRatio || 1;
  canvas.style.height = `${high}px`;
  canvas.width = wide * ratio;
  canvas.height = high * ratio;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const [ink, rule] = ["--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
  const rows = new Map(ranks.map((rank, k) => [rank, TOP + k * lane]));
  const px = (t) => LEFT + ((t - view.from) / (view.to - view.from)) * (wide - LEFT - 6);
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = ink;
  for (const [rank, y] of rows) pen.fillText(`rank ${rank}`, 6, y + lane / 2 + 2);
  pen.beginPath();
  pen.rect(LEFT, 0, wide - LEFT, high);
  pen.clip();
  const inks = KINDS.map((_, kind) => paint(kind));
  drawRuler(pen, trace, view, { px, wide, high, ink, rule });
  for (let kind = 0; kind < 3; kind += 1) {
    for (let k = 0; k < count; k += 1) {
      if (e.kind[k] !== kind || start[k] + e.took[k] < view.from || start[k] > view.to) continue;
      const x = px(start[k]), y = rows.get(e.rank[k]), w = Math.max(0.7, px(start[k] + e.took[k]) - x - 0.4);
      pen.fillStyle = inks[kind];
      pen.fillRect(x, kind === 2 ? y + lane - 5 : y + 1, w, kind === 2 ? 3 : lane - 8);
    }
  }
  // Names last, where there is room before a wait hides them.
  pen.fillStyle = style.getPropertyValue("--on").trim();
  for (let k = 0; k < count && lane >= 20; k += 1) {
    if (e.kind[k] !== 0) continue;
    const x = Math.max(LEFT, px(start[k])), w = px(start[k] + e.took[k]) - x, text = names[e.name[k]];
    if (w > 64 && x < wide && pen.measureText(text).width < free(trace, k, px, x) - 8) pen.fillText(text, x + 4, rows.get(e.rank[k]) + lane / 2 + 1);
  }
}

/// How many pixels of a phase no wait of its rank covers, from its left end on.
function free(trace, phase, px, x) {
  const { events: e, start, count } = trace;
  const end = start[phase] + e.took[phase];
  for (let k = phase + 1; k < count && start[k] < end; k += 1) if (e.kind[k] === 1 && e.rank[k] === e.rank[phase]) return px(start[k]) - x;
  return px(end) - x;
}

/// Times above, and under them where epochs begin.
function drawRuler(pen, trace, view, { px, wide, high, ink, rule }) {
  pen.fillStyle = ink;
  pen.strokeStyle = rule;
  for (const t of ticksOf(view.from, view.to, Math.max(2, (wide - LEFT) / 130))) {
    if (px(t) + 52 < wide) pen.fillText(duration(t / 1000), px(t) + 3, 13);
    pen.fillRect(px(t), 4, 1, 10);
  }
  let next = -Infinity;
  for (const [epoch, at] of trace.begins) {
    const x = px(at);
    if (at < view.from - 1 || at > view.to || x < next) continue;
    pen.fillRect(x, 20, 1, high - 20);
    // A name that would be cut off says nothing.
    if (x + 56 < wide) pen.fillText(`epoch ${epoch}`, x + 3, 30);
    next = x + 64;
  }
}

function listenTo(canvas, on) {
  const { trace, view, lane } = on;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { t: view.from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - 6)) * (view.to - view.from), rank: trace.ranks[Math.floor((event.clientY - box.top - TOP) / lane)] };
  };
  canvas.addEventListener("wheel", (event) => {
    // A page that scrolls should not stop at the picture.
    if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return;
    event.preventDefault();
    on.zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event).t);
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = at(event).t; canvas.setPointerCapture(event.pointerId); });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = null; });
  canvas.addEventListener("pointerleave", () => on.said(null));
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null) on.move(held - at(event).t);
    else on.said(whatIs(trace, at(event)));
  });
  canvas.addEventListener("keydown", (event) => {
    const span = view.to - view.from;
    const does = { "+": () => on.zoom(0.7, on.middle()), "=": () => on.zoom(0.7, on.middle()), "-": () => on.zoom(1.4, on.middle()),
      ArrowLeft: () => on.move(-span / 5), ArrowRight: () => on.move(span / 5), Home: () => on.moveTo(0, span), End: () => on.moveTo(trace.end, span) }[event.key];
    if (does) { event.preventDefault(); does(); }
  });
}

/// What a rank did at a time.
function whatIs({ events: e, start, count, names }, { t, rank }) {
  let found = null;
  for (let k = 0; k < count && start[k] <= t; k += 1) if (e.rank[k] === rank && e.kind[k] !== 2 && start[k] + e.took[k] >= t) found = k;
  return found === null ? null : `rank ${rank}, epoch ${e.epoch[found]}: ${names[e.name[found]]}, ${duration(e.took[found] / 1000)}`;
}

/// How much of its time each rank waited.
function sharesOf({ events: e, names, ranks }) {
  const rows = new Map(ranks.map((rank) => [rank, { rank, busy: 0, waited: 0, by: {} }]));
  for (let k = 0; k < e.kind.length; k += 1) {
    const row = rows.get(e.rank[k]), name = names[e.name[k]];
    if (e.kind[k] === 0) { row.busy += e.took[k]; row.by[name] = (row.by[name] || 0) + e.took[k]; }
    if (e.kind[k] === 1) row.waited += e.took[k];
  }
  const all = [...rows.values()];
  const phases = [...new Set(all.flatMap((row) => Object.keys(row.by)))];
  return table([{ title: "rank", value: (row) => row.rank, number: true },
    ...phases.map((phase) => ({ title: phase, value: (row) => row.by[phase] || 0, show: (x) => duration(x / 1000), number: true })),
    { title: "together", value: (row) => row.busy, show: (x) => duration(x / 1000), number: true },
    { title: "of that waiting", value: (row) => (row.busy ? row.waited / row.busy : 0), show: percent, number: true, bar: (row) => (row.busy ? row.waited / row.busy : 0) }], all, { label: "Time of ranks by phase" });
}

/// The events of this page in Chrome's format, as the run wrote them but for the numbers of exchanges.
function saveTrace(run, start) {
  const { names, events: e, origin } = run.trace;
  const out = [...new Set(e.rank)].map((tid) => ({ name: "thread_name", ph: "M", pid: 0, tid, args: { name: `rank ${tid}` } }));
  let id = 0;
  for (let k = 0; k < e.kind.length; k += 1) {
    const base = { name: names[e.name[k]], pid: 0, tid: e.rank[k], ts: origin + start[k] };
    if (e.kind[k] === 2) {
      id += 1;
      out.push({ ...base, cat: "exchange", ph: "b", id, args: { epoch: e.epoch[k], carries: names[e.carries[k]], layer: e.layer[k], sent: e.sent[k], received: e.received[k] } },
        { ...base, cat: "exchange", ph: "e", id, ts: base.ts + e.took[k], args: {} });
    } else out.push({ ...base, cat: e.kind[k] === 0 ? "train" : "wait", ph: "X", dur: e.took[k], args: { epoch: e.epoch[k] } });
  }
  save(`${run.name.replace(/[^\w.-]/g, "_")}-trace.json`, "application/json", JSON.stringify(out));
}
