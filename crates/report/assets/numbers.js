// Numbers as people read them.

const known = (x) => typeof x === "number" && Number.isFinite(x);

function number(x, digits = 4) {
  if (!known(x)) return "–";
  const size = Math.abs(x);
  if (x !== 0 && (size < 1e-3 || size >= 1e6)) return x.toExponential(digits - 2);
  return String(Number(x.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))))));
}

function bytes(x) {
  if (!known(x)) return "–";
  let unit = 0;
  while (x >= 1024 && unit < 5) { x /= 1024; unit += 1; }
  return `${unit === 0 ? x : x.toFixed(x < 10 ? 2 : 1)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

function duration(ms) {
  if (!known(ms)) return "–";
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 1000) return `${ms.toFixed(ms < 10 ? 2 : 1)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 7200000 ? `${(ms / 60000).toFixed(1)} min` : `${(ms / 3600000).toFixed(1)} h`;
}

const score = (x, run) => (known(x) ? `${x.toFixed(run.unit ? 2 : 4)}${run.unit}` : "–");
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
function deviation(list) {
  const middle = mean(list);
  return list.length > 1 ? Math.sqrt(list.reduce((a, b) => a + (b - middle) ** 2, 0) / (list.length - 1)) : 0;
}
function median(list) {
  const all = list.filter(known).sort((a, b) => a - b);
  return all.length ? all[Math.floor(all.length / 2)] : null;
}
/// Mean and deviation over the seeds of a run.
function scored(run, part) {
  const all = run.seeds.map((seed) => seed.best && seed.best[part]).filter(known);
  if (!all.length) return { mean: null, text: "–" };
  const spread = all.length > 1 ? ` ± ${deviation(all).toFixed(run.unit ? 2 : 4)}` : "";
  return { mean: mean(all), text: `${mean(all).toFixed(run.unit ? 2 : 4)}${spread}${run.unit}` };
}
const date = (seconds) => (known(seconds) ? new Date(seconds * 1000).toLocaleString() : "–");
const sum = (list) => list.reduce((a, b) => a + (known(b) ? b : 0), 0);
