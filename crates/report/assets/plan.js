// How the work was spread, what else was looked at, and whether the prediction held.

function planSection(run, prefix) {
  const plan = run.plan;
  if (!plan) return null;
  const { predicted, measured } = plan;
  const rows = [];
  if (predicted || measured) {
    const error = (a, b) => (known(a) && known(b) && b > 0 ? `${((100 * (a - b)) / b).toFixed(1)} %` : "–");
    rows.push(["epoch", duration(predicted && predicted.epoch_ms), duration(measured && measured.epoch_ms),
      error(predicted && predicted.epoch_ms, measured && measured.epoch_ms), known(predicted && predicted.error) ? `± ${(100 * predicted.error).toFixed(0)} %` : "–"]);
    rows.push(["peak memory of a rank", bytes(predicted && predicted.peak_bytes), bytes(measured && measured.peak_bytes),
      error(predicted && predicted.peak_bytes, measured && measured.peak_bytes), "–"]);
  }
  const facts = [["strategy", plan.strategy], ["ranks", plan.ranks], ["computed again in backward", plan.remat],
    ["partition", plan.partition && `${plan.partition.method}, ${plan.partition.parts} parts`]].filter(([, text]) => text);
  return section(`${prefix}plan`, "Plan", plan.why,
    el("table", null, el("tbody", null, facts.map(([name, text]) => el("tr", null, el("th", { scope: "row" }, name), el("td", null, text))))),
    rows.length ? el("h3", null, "Predicted against measured") : null,
    rows.length ? table(["", "predicted", "measured", "difference", "stated error"].map((title, k) => ({ title: title || "what", value: (row) => row[k], number: k > 0 })), rows,
      { label: "Predicted against measured" }) : null,
    candidatesOf(plan.candidates || [], plan.strategy));
}

/// Every way that the planner looked at: a picture of those that fit, a table of all.
function candidatesOf(candidates, strategy) {
  if (!candidates.length) return null;
  const isChosen = (c) => (c.chosen !== undefined ? c.chosen : c.strategy === strategy);
  const fitting = candidates.filter((c) => c.feasible && known(c.time_ms)).sort((a, b) => a.time_ms - b.time_ms);
  const name = (c) => [c.strategy, c.partition, c.remat && c.remat !== "none" ? `again: ${c.remat}` : null].filter(Boolean).join(", ");
  const rest = candidates.filter((c) => !known(c.time_ms));
  const parts = (c) => { const rest = Math.max(0, c.time_ms - (c.compute_ms || 0) - (c.comm_ms || 0)); return { computing: c.compute_ms || 0, "waiting for messages": c.comm_ms || 0, "waiting for slower ranks": rest }; };
  return el("div", null, el("h3", null, `Candidates (${candidates.length})`),
    fitting.length ? bars(fitting.slice(0, 12).map((c) => ({ title: name(c), values: parts(c), chosen: isChosen(c) })),
      ["computing", "waiting for messages", "waiting for slower ranks"], duration) : null,
    candidateTable(candidates.filter((c) => known(c.time_ms)), name, isChosen),
    rest.length ? el("details", null, el("summary", null, `Not rehearsed (${rest.length})`), candidateTable(rest, name, isChosen)) : null);
}

function candidateTable(candidates, name, isChosen) {
  return table([
      { title: "strategy", value: name }, { title: "epoch", value: (c) => c.time_ms, show: duration, number: true },
      { title: "computing", value: (c) => c.compute_ms, show: duration, number: true },
      { title: "messages", value: (c) => c.comm_ms, show: duration, number: true },
      { title: "sent per epoch", value: (c) => c.bytes_sent, show: (x) => (known(x) ? bytes(x) : "–"), number: true },
      { title: "peak memory", value: (c) => c.peak_bytes, show: bytes, number: true },
      { title: "remark", value: (c) => (isChosen(c) ? "chosen" : c.feasible ? "" : c.reason || "does not fit"), text: true },
    ], candidates, { label: "Candidates", mark: (c) => (isChosen(c) ? "chosen" : c.feasible ? null : "dim") });
}

/// The page of a plan alone.
function planPage(plan) {
  return [section("plan", "Plan", plan.why, el("div", { class: "figures" }, [
    ["choice", plan.choice ? plan.choice.strategy : "nothing fits"], ["epoch", duration(plan.choice && plan.choice.time_ms)],
    ["peak memory of a rank", bytes(plan.choice && plan.choice.peak_bytes)]].map(([name, text]) =>
    el("div", { class: "figure" }, el("b", null, text), el("span", null, name)))),
  candidatesOf(plan.candidates || [], plan.choice && plan.choice.strategy))];
}
