// Whether anything is wrong, and what was said while training.

function remarksSection(run, prefix) {
  const wrong = [...run.problems.map(({ file, text }) => `${file} ${text}`), ...run.seeds.flatMap((seed) => wrongOf(seed, run)), ...offPlan(run.plan)];
  const notes = (Array.isArray(run.notes) ? run.notes : []).filter((note) => note && note.text).map((note) => (note.epoch ? `epoch ${note.epoch}: ${note.text}` : String(note.text)));
  // The one thing said while training that asks for somebody to act.
  const asks = (text) => /diverged/.test(text);
  wrong.push(...notes.filter(asks));
  const said = notes.filter((text) => !asks(text));
  const list = (all, look) => [all.slice(0, 200).map((text) => el("p", { class: look }, text)), all.length > 200 ? el("p", null, `and ${all.length - 200} more`) : null];
  return section(`${prefix}remarks`, titled(run, "Remarks"), null,
    wrong.length ? list(wrong, "remark") : el("p", { class: "remark fine" }, "Nothing is wrong with this run's files, loss or plan."),
    guardOf(run), said.length ? [el("h3", null, "Said while training"), list(said, "remark said")] : null);
}

/// How far approximate epochs were from exact ones, where that was looked at.
function guardOf(run) {
  const rows = run.seeds.flatMap((seed) => (seed.guard || []).filter(({ seen }) => seen && typeof seen === "object")
    .map(({ line, seen }) => ({ seed: seed.seed, epoch: (seed.metrics.epoch || [])[line] ?? line + 1, seen })));
  if (!rows.length) return null;
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.seen)))];
  const show = (x) => (typeof x === "number" ? number(x, 3) : x === null || x === undefined ? "–" : String(x));
  return [el("h3", null, "Guard: how far approximate epochs were from exact ones"),
    table([run.seeds.length > 1 ? { title: "seed", value: (row) => row.seed, number: true } : null, { title: "epoch", value: (row) => row.epoch, number: true },
      ...names.map((name) => ({ title: name.replaceAll("_", " "), value: (row) => row.seen[name], show, number: true }))].filter(Boolean), rows, { label: "Guard" })];
}

/// What is wrong with the epochs of a seed.
function wrongOf(seed, run) {
  const remarks = [];
  const losses = seed.metrics.loss || [], lost = losses.filter((x) => !known(x)).length;
  if (lost) remarks.push(`seed ${seed.seed}: the loss was not a number in ${counted(lost, "epoch", "epochs")}`);
  const best = seed.best && seed.best.epoch;
  if (run.state === "finished" && known(best) && best === seed.epochs && seed.epochs > 1) remarks.push(`seed ${seed.seed}: the last epoch was the best; more epochs may help`);
  return remarks;
}

/// Whether an epoch took much longer or shorter than the plan said.
function offPlan(plan) {
  const { predicted, measured } = plan || {};
  if (!predicted || !measured || !known(predicted.epoch_ms) || !known(measured.epoch_ms) || !known(predicted.error)) return [];
  const off = Math.abs(predicted.epoch_ms - measured.epoch_ms) / measured.epoch_ms;
  return off <= Math.max(predicted.error, 0.12) ? []
    : [`the plan expected ${duration(predicted.epoch_ms)} per epoch and ${duration(measured.epoch_ms)} were measured: was the machine busy? graphweft plan --calibrate measures it anew`];
}
