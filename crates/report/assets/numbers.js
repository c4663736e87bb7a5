// Numbers as people read them.

const known = (x) => typeof x === "number" && Number.isFinite(x);

function number(x, digits = 4) {
  if (!known(x)) return "–";
  const size = Math.abs(x);
  if (x !== 0 && (size < 1e-4 || size >= 1e6)) return x.toExponential(digits - 2);
  return String(Number(x.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))))));
}

/// A whole number with its thousands apart.
const whole = (x) => (known(x) ? x.toLocaleString("en") : "–");
/// So many of something.
const counted = (n, one, several) => `${whole(n)} ${n === 1 ? one : several}`;
const percent = (x) => (known(x) ? `${(100 * x).toFixed(1)} %` : "–");
/// A number with its sign, whose minus is as wide as a plus.
const signed = (x, digits) => (Number(x.toFixed(digits)) === 0 ? (0).toFixed(digits) : x < 0 ? `−${(-x).toFixed(digits)}` : `+${x.toFixed(digits)}`);

/// The unit in which the largest of these bytes is a number of at most four digits, and its size.
function unitOf(all) {
  let [size, name] = [1, "B"];
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) if (Math.max(0, ...all.filter(known)) >= 1000 * size) [size, name] = [size * 1024, next];
  return { size, name };
}

/// A round step that divides `span` into about `count`.
function stepOf(span, count) {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= raw * 0.999);
}

/// Round numbers from `low` to `high`, in multiples of a unit.
function ticksOf(low, high, count, unit = 1) {
  const step = stepOf((high - low) / unit, count) * unit, all = [];
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) all.push(k * step);
  return all;
}

/// The unit in which people read this many milliseconds.
const unitOfTime = (ms) => (ms < 1 ? 1e-3 : ms < 1000 ? 1 : ms < 120000 ? 1000 : ms < 7200000 ? 60000 : 3600000);

function bytes(x) {
  if (!known(x)) return "–";
  let unit = 0;
  while (x >= 1024 && unit < 5) { x /= 1024; unit += 1; }
  return `${unit === 0 ? x : x.toFixed(x < 10 ? 2 : 1)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

function duration(ms) {
  if (!known(ms)) return "–";
  if (ms === 0) return "0";
  if (ms < 1) return `${(ms * 1000).toFixed(ms < 0.01 ? 1 : 0)} µs`;
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
  if (!all.length) return { mean: null, spread: null, text: "–" };
  const spread = all.length > 1 ? deviation(all).toFixed(run.unit ? 2 : 4) : null;
  return { mean: mean(all), spread, text: `${mean(all).toFixed(run.unit ? 2 : 4)}${spread === null ? "" : ` ± ${spread}`}${run.unit}` };
}
const date = (seconds) => (known(seconds) ? new Date(seconds * 1000).toLocaleString() : "–");
const sum = (list) => list.reduce((a, b) => a + (known(b) ? b : 0), 0);
