// Whether anything is wrong.

function remarksSection(run, prefix) {
  const remarks = [];
  for (const { file, text } of run.problems) remarks.push(`${file} ${text}`);
  for (const note of Array.isArray(run.notes) ? run.notes : []) remarks.push(note.epoch ? `epoch ${note.epoch}: ${note.text}` : note.text);
  for (const seed of run.seeds) {
    for (const { line, seen } of seed.guard || []) {
      const values = Object.entries(seen).map(([key, value]) => `${key.replaceAll("_", " ")} ${typeof value === "number" ? number(value) : value}`);
      remarks.push(`seed ${seed.seed}, epoch ${(seed.metrics.epoch || [])[line] ?? line + 1}: approximate beside exact: ${values.join(", ")}`);
    }
    const losses = (seed.metrics.loss || []);
    if (losses.length && losses.some((x) => !known(x))) remarks.push(`seed ${seed.seed}: the loss was not a number in ${losses.filter((x) => !known(x)).length} epochs`);
    const best = seed.best && seed.best.epoch;
    if (run.state === "finished" && known(best) && best === seed.epochs && seed.epochs > 1) remarks.push(`seed ${seed.seed}: the last epoch was the best; more epochs may help`);
  }
  const predicted = run.plan && run.plan.predicted, measured = run.plan && run.plan.measured;
  if (predicted && measured && known(predicted.epoch_ms) && known(measured.epoch_ms) && known(predicted.error)) {
    const off = Math.abs(predicted.epoch_ms - measured.epoch_ms) / measured.epoch_ms;
    if (off > Math.max(predicted.error, 0.12)) remarks.push(`the plan expected ${duration(predicted.epoch_ms)} per epoch and ${duration(measured.epoch_ms)} were measured: was the machine busy? graphweft plan --calibrate measures it anew`);
  }
  const shown = remarks.slice(0, 200);
  return section(`${prefix}remarks`, "Remarks", null, shown.length ? shown.map((text) => el("p", { class: "remark" }, text))
    : el("p", { class: "remark fine" }, "Nothing is wrong with this run's files, loss or plan."),
  remarks.length > shown.length ? el("p", null, `and ${remarks.length - shown.length} more`) : null);
}
