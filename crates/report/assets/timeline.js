// What each rank did when: computing, waiting, exchanging. Wheel or keys zoom, dragging moves.

const KINDS = ["computing", "waiting", "exchange under way"];

function timelineSection(run, prefix) {
  const trace = run.trace;
  if (!trace || !trace.events || !trace.events.kind.length) return null;
  const e = trace.events, count = e.kind.length;
  const start = new Float64Array(count);
  for (let k = 0, at = 0; k < count; k += 1) { at += e.after[k]; start[k] = at; }
  const ranks = Math.max(...e.rank) + 1;
  let end = 1;
  for (let k = 0; k < count; k += 1) end = Math.max(end, start[k] + e.took[k]);
  // The first two epochs are what one wants to see; the rest is a zoom away.
  let early = end;
  for (let k = 0; k < count; k += 1) if (e.epoch[k] > 2) { early = Math.min(early, start[k]); }
  const view = { from: 0, to: Math.max(early, end / 2000) };
  const lane = Math.max(16, Math.min(34, 520 / ranks)), top = 22;
  const canvas = el("canvas", { class: "time", tabindex: 0, role: "img",
    "aria-label": `Timeline of ${ranks} ranks over ${duration(end / 1000)}. Keys: plus and minus zoom, arrows move.` });
  const readout = el("p", { class: "lead", "aria-live": "off" }, "\u00a0");
  function draw() {
    const wide = canvas.clientWidth || 800, high = top + ranks * lane + 4, ratio = devicePixelRatio || 1;
    canvas.style.height = `${high}px`;
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft").trim(), left = 58;
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    const px = (t) => left + ((t - view.from) / (view.to - view.from)) * (wide - left - 6);
    pen.fillStyle = ink;
    for (let k = 0; k <= 5; k += 1) { const t = view.from + ((view.to - view.from) * k) / 5; pen.fillText(duration(t / 1000), Math.min(px(t), wide - 60), 14); }
    for (let r = 0; r < ranks; r += 1) pen.fillText(`rank ${r}`, 6, top + r * lane + lane / 2 + 4);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, wide - left, high);
    pen.clip();
    for (let kind = 0; kind < 3; kind += 1) {
      pen.fillStyle = [colour(0), colour(1), colour(2)][kind];
      for (let k = 0; k < count; k += 1) {
        if (e.kind[k] !== kind) continue;
        const a = start[k], b = a + e.took[k];
        if (b < view.from || a > view.to) continue;
        const x = px(a), y = top + e.rank[k] * lane;
        const thick = kind === 2 ? 3 : lane - 8;
        pen.fillRect(x, kind === 2 ? y + lane - 5 : y + 1, Math.max(0.7, px(b) - x - 0.4), thick);
      }
    }
    pen.restore();
  }
  const at = (event) => { const box = canvas.getBoundingClientRect(); return { t: view.from + ((event.clientX - box.left - 58) / (box.width - 64)) * (view.to - view.from), rank: Math.floor((event.clientY - box.top - top) / lane) }; };
  const zoom = (factor, around) => {
    const span = Math.min(end, Math.max(10, (view.to - view.from) * factor));
    const share = (around - view.from) / (view.to - view.from);
    view.from = Math.min(Math.max(0, around - span * share), end - span);
    view.to = view.from + span;
    draw();
  };
  const move = (by) => { const span = view.to - view.from; view.from = Math.min(Math.max(0, view.from + by), Math.max(0, end - span)); view.to = view.from + span; draw(); };
  const middle = () => (view.from + view.to) / 2;
  canvas.addEventListener("wheel", (event) => { if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return; event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event).t); }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = at(event).t; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null) { move(held - at(event).t); return; }
    const { t, rank } = at(event);
    let found = null;
    for (let k = 0; k < count && start[k] <= t; k += 1) if (e.rank[k] === rank && e.kind[k] !== 2 && start[k] + e.took[k] >= t) found = k;
    readout.textContent = found === null ? "\u00a0" : `rank ${rank}, epoch ${e.epoch[found]}: ${trace.names[e.name[found]]}, ${duration(e.took[found] / 1000)}`;
  });
  canvas.addEventListener("keydown", (event) => {
    const span = view.to - view.from;
    const does = { "+": () => zoom(0.7, middle()), "=": () => zoom(0.7, middle()), "-": () => zoom(1.4, middle()), ArrowLeft: () => move(-span / 5), ArrowRight: () => move(span / 5), Home: () => move(-end), End: () => move(end) }[event.key];
    if (does) { event.preventDefault(); does(); }
  });
  const part = section(`${prefix}timeline`, "Timeline",
    ofSeed(run, "What each rank did when, by the clock of its host. Click the picture, then the wheel, + and − zoom; drag or arrows move."),
    el("div", { class: "keys" }, KINDS.map((kind, k) => el("span", null, el("span", { class: "swatch", style: `background:${colour(k)}` }), `${kind}\u2003`))),
    canvas, readout, el("div", { class: "controls" },
      el("button", { type: "button", onclick: () => zoom(0.5, middle()) }, "Zoom in"), el("button", { type: "button", onclick: () => zoom(2, middle()) }, "Zoom out"),
      el("button", { type: "button", onclick: () => { view.from = 0; view.to = end; draw(); } }, "Show all"),
      el("button", { type: "button", onclick: () => saveTrace(run, start) }, "Save the trace for Perfetto")),
    sharesOf(trace, start, ranks),
    trace.left_out ? el("p", null, `${trace.left_out} later events are not in this page; trace.json in the run folder has them.`) : null);
  part.start = draw;
  part.resize = draw;
  return part;
}

/// How much of its time each rank waited.
function sharesOf(trace, start, ranks) {
  const e = trace.events;
  const rows = [...Array(ranks).keys()].map((rank) => ({ rank, busy: 0, waited: 0, by: {} }));
  for (let k = 0; k < e.kind.length; k += 1) {
    const row = rows[e.rank[k]];
    if (e.kind[k] === 0) { row.busy += e.took[k]; const name = trace.names[e.name[k]]; row.by[name] = (row.by[name] || 0) + e.took[k]; }
    if (e.kind[k] === 1) row.waited += e.took[k];
  }
  const phases = [...new Set(rows.flatMap((row) => Object.keys(row.by)))];
  return table([{ title: "rank", value: (row) => row.rank, number: true },
    ...phases.map((phase) => ({ title: phase, value: (row) => row.by[phase] || 0, show: (x) => duration(x / 1000), number: true })),
    { title: "of it waiting", value: (row) => (row.busy ? row.waited / row.busy : 0), show: (x) => `${(100 * x).toFixed(1)} %`, number: true }], rows, { label: "Time of ranks by phase" });
}

/// The trace in Chrome's format, as the run wrote it.
function saveTrace(run, start) {
  const { names, events: e, origin } = run.trace;
  const out = [...new Set(e.rank)].map((tid) => ({ name: "thread_name", ph: "M", pid: 0, tid, args: { name: `rank ${tid}` } }));
  let id = 0;
  for (let k = 0; k < e.kind.length; k += 1) {
    const base = { name: names[e.name[k]], pid: 0, tid: e.rank[k], ts: origin + start[k] };
    if (e.kind[k] === 2) {
      id += 1;
      out.push({ ...base, cat: "exchange", ph: "b", id, args: { epoch: e.epoch[k], sent: e.sent[k], received: e.received[k] } },
        { ...base, cat: "exchange", ph: "e", id, ts: base.ts + e.took[k], args: {} });
    } else out.push({ ...base, cat: e.kind[k] === 0 ? "train" : "wait", ph: "X", dur: e.took[k], args: { epoch: e.epoch[k] } });
  }
  save(`${run.name.replace(/[^\w.-]/g, "_")}-trace.json`, "application/json", JSON.stringify(out));
}
