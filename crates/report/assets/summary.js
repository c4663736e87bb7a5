// What came out, of what, by which command.

function summarySection(run, prefix, again) {
  const first = run.seeds[0] || { metrics: {}, times: {} };
  const epoch = median(first.times.learn_ms || []);
  const measured = run.plan && run.plan.measured;
  const figures = [
    [`test ${run.metric || "score"}`, scored(run, "test").text],
    [`validation ${run.metric || "score"}`, scored(run, "valid").text],
    ["best epoch", run.seeds.map((seed) => seed.best && seed.best.epoch).filter(known).join(", ") || "–"],
    ["epochs", run.seeds.map((seed) => seed.epochs).join(", ")],
    ["median epoch", duration(epoch)],
    ["peak memory of a rank", bytes(measured ? measured.peak_bytes : run.usage && run.usage.ranks
      ? Math.max(...run.usage.ranks.map((rank) => sum(Object.values(rank.peak)))) : null)],
    ["parameters", known(first.parameters) ? first.parameters.toLocaleString("en") : "–"],
    ["state", run.state],
  ];
  const changed = run.settings.filter((s) => s.default !== null && s.default !== s.value || s.default === null);
  const starts = Array.isArray(run.starts) ? run.starts : [];
  const last = starts[starts.length - 1] || {};
  const facts = [["dataset", run.dataset], ["model", run.model], ["split", run.split], ["folder", run.folder],
    ["strategy", run.plan && `${run.plan.strategy} on ${run.plan.ranks} rank${run.plan.ranks === 1 ? "" : "s"}`],
    ["machine", last.host], ["version", last.version], ["started", starts.map((s) => date(s.time)).join("; ")],
    ["command", (last.command || []).join(" ")]];
  const statistics = run.data && run.data.statistics ? Object.entries(run.data.statistics) : [];
  return section(`${prefix}summary`, run.name, null, seedChoice(run, prefix, again),
    el("div", { class: "figures" }, figures.map(([name, text]) =>
      el("div", { class: "figure" }, el("b", null, text), el("span", null, name)))),
    el("div", { class: "halves" }, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Facts of the run" },
      el("table", null, el("tbody", null, facts.filter(([, text]) => text).map(([name, text]) =>
        el("tr", null, el("th", { scope: "row" }, name), el("td", { class: name === "command" ? "code" : "text" }, text))),
      statistics.map(([name, value]) => el("tr", null, el("th", { scope: "row" }, name.replaceAll("_", " ")),
        el("td", null, typeof value === "number" ? number(value, 6) : String(value))))))),
    el("div", null, el("details", { open: changed.length < 16 }, el("summary", null, `Settings that differ from the defaults (${changed.length})`),
      table([{ title: "setting", value: (s) => s.key }, { title: "value", value: (s) => s.value, text: true },
        { title: "default", value: (s) => s.default ?? "not set", text: true }], changed, { label: "Changed settings" })),
    el("details", null, el("summary", null, `All settings (${run.settings.length})`),
      table([{ title: "setting", value: (s) => s.key }, { title: "value", value: (s) => s.value, text: true }], run.settings,
        { label: "All settings" })),
    el("p", null, el("button", { type: "button", onclick: () => saveTable(run) }, "Save all epochs as CSV")))));
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
