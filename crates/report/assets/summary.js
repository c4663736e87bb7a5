// What came out, of what, by which command.

function summarySection(run, prefix, again) {
  return section(`${prefix}summary`, run.name, null,
    el("p", { class: `state ${run.state}` }, stateOf(run)), seedChoice(run, prefix, again),
    el("div", { class: "figures" }, figuresOf(run).map(figure)),
    el("div", { class: "halves" }, el("div", null, el("h3", null, "Run"), facts(factsOf(run), "Facts of the run"), datasetOf(run)),
      el("div", null, settingsOf(run), el("p", null, el("button", { type: "button", onclick: () => saveTable(run) }, "Save all epochs as CSV")))));
}

const STATES = { finished: "Finished.", running: "Still running.", stopped: "Stopped before its end; graphweft train --resume goes on with it." };
const stateOf = (run) => STATES[run.state] || run.state;

/// A number that stands out, with what it is above it.
const figure = ([name, text, more]) => el("div", { class: "figure" }, el("span", null, name), el("b", null, text), more ? el("small", null, more) : null);

/// Of several seeds the same number once, or from the least to the largest.
function span(list) {
  const all = list.filter(known);
  if (!all.length) return "–";
  const [least, most] = [Math.min(...all), Math.max(...all)];
  return least === most ? whole(least) : `${whole(least)}–${whole(most)}`;
}

/// The memory of the rank that needed most.
const peakOf = (run) => (run.plan && run.plan.measured ? run.plan.measured.peak_bytes
  : run.usage && run.usage.ranks ? Math.max(...run.usage.ranks.map((rank) => sum(Object.values(rank.peak || {})))) : null);
const learnedMs = (run) => run.seeds.map((seed) => sum((seed.times || {}).learn_ms || []));

function figuresOf(run) {
  const first = run.seeds[0] || { times: {} };
  const several = run.seeds.length > 1 ? `of ${run.seeds.length} seeds` : null;
  const scores = (part) => { const { mean, spread } = scored(run, part); return [score(mean, run), spread ? `± ${spread} over ${run.seeds.length} seeds` : null]; };
  return [
    [`test ${run.metric || "score"}`, ...scores("test")], [`validation ${run.metric || "score"}`, ...scores("valid")],
    ["best epoch", span(run.seeds.map((seed) => seed.best && seed.best.epoch)), several || `of ${span([first.epochs])}`],
    ["epochs", span(run.seeds.map((seed) => seed.epochs)), several && "of each seed"],
    ["median epoch", duration(median(first.times.learn_ms || []))], ["learning, all epochs", duration(mean(learnedMs(run))), several && "mean of seeds"],
    ["peak memory of a rank", bytes(peakOf(run))], ["parameters", whole(first.parameters)],
  ];
}

const TASKS = { class: "one class for each node", each: "several labels for each node", link: "which nodes are linked", "node-regression": "numbers for each node",
  "graph-class": "one class for each graph", "graph-each": "several labels for each graph", "graph-regression": "numbers for each graph" };

function factsOf(run) {
  const starts = Array.isArray(run.starts) ? run.starts : [];
  const last = starts[starts.length - 1] || {};
  return [["dataset", run.dataset], ["model", run.model], ["task", TASKS[run.task] || run.task], ["split", run.split],
    ["spread", run.plan && run.plan.strategy && `${run.plan.strategy}, ${counted(run.plan.ranks, "rank", "ranks")}`],
    ["machine", [last.host, last.machine].filter(Boolean).join(": ")], ["version", last.version],
    ["started", starts.map((s) => (s.epoch ? `${date(s.time)}, after epoch ${s.epoch}` : date(s.time))).join("; ")],
    ["command", Array.isArray(last.command) ? last.command.join(" ") : null, "code"], ["folder", run.folder, "code"]];
}

/// Rows of a name and what it is.
function facts(rows, label) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, el("table", { class: "facts" }, el("tbody", null,
    rows.filter(([, text]) => text !== null && text !== undefined && text !== "").map(([name, text, look]) =>
      el("tr", null, el("th", { scope: "row" }, name), el("td", { class: look || "text" }, text))))));
}

/// Statistics of the graph, in an order that does not depend on how they are stored.
function datasetOf(run) {
  const statistics = run.data && run.data.statistics;
  if (!statistics) return null;
  const order = ["graphs", "nodes", "edges", "nodes per graph", "nodes of the largest graph", "loops", "mean degree", "largest degree", "features", "classes", "labels", "targets"];
  const names = [...order.filter((name) => name in statistics), ...Object.keys(statistics).filter((name) => !order.includes(name))];
  const show = (x) => (Number.isInteger(x) ? whole(x) : typeof x === "number" ? number(x, 4) : String(x));
  return [el("h3", null, "Dataset"), facts(names.map((name) => [name, show(statistics[name])]), "Dataset"),
    ...typesOf(run.data.types || {})];
}

/// How many nodes and edges of each type there are, where they have types.
function typesOf(types) {
  return [["nodes", "Nodes by type"], ["edges", "Edges by type, as they are stored"]].filter(([key]) => Array.isArray(types[key]) && types[key].length).map(([key, title]) => {
    const all = sum(types[key].map((one) => one.count));
    return el("div", null, el("h3", null, title), table([{ title: "type", value: (one) => one.name, text: true }, { title: key, value: (one) => one.count, show: whole, number: true },
      { title: "share", value: (one) => one.count / (all || 1), show: percent, number: true, bar: (one) => one.count / (all || 1) }], types[key], { label: title }));
  });
}

function settingsOf(run) {
  const changed = run.settings.filter((s) => s.default === null || s.default !== s.value);
  const value = { title: "value", value: (s) => s.value, text: true };
  return [el("h3", null, `Settings that are not the default (${changed.length})`),
    changed.length ? table([{ title: "setting", value: (s) => s.key }, value, { title: "default", value: (s) => s.default ?? "not set", text: true }], changed, { label: "Changed settings" })
      : el("p", { class: "lead" }, "None."),
    el("details", null, el("summary", null, `All settings (${run.settings.length})`),
      table([{ title: "setting", value: (s) => s.key }, value], run.settings, { label: "All settings" }))];
}

/// Of several seeds, which one's plan, memory, messages, kernels and timeline are shown.
function seedChoice(run, prefix, again) {
  if (run.seeds.length < 2) return null;
  const id = `${prefix}seed`;
  const choice = el("select", { id, onchange: () => { kept.set(id, Number(choice.value)); again(id); } },
    run.seeds.map((seed) => el("option", { value: seed.seed, selected: seed.seed === run.shownSeed }, `seed ${seed.seed}`)));
  return el("div", { class: "controls" }, el("label", { for: id }, "Plan, memory, messages, kernels and timeline are those of ", choice),
    el("span", { class: "on-paper" }, `seed ${run.shownSeed}`));
}

/// Every value of every epoch of every seed, as it was written.
function saveTable(run) {
  const names = [...new Set(run.seeds.flatMap((seed) => [...Object.keys(seed.metrics), ...Object.keys(seed.times)]))];
  const columns = ["epoch", ...names.filter((name) => name !== "epoch")];
  const lines = [["seed", ...columns].join(",")];
  for (const seed of run.seeds) {
    for (let k = 0; k < seed.epochs; k += 1) {
      const of = (name) => (seed.metrics[name] || seed.times[name] || [])[k] ?? "";
      lines.push([seed.seed, ...columns.map(of)].join(","));
    }
  }
  save(`${run.name.replace(/[^\w.-]/g, "_")}.csv`, "text/csv", `${lines.join("\n")}\n`);
}
