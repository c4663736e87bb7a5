// Run folders as training leaves them, small and large, whole and damaged.

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const config = (name, epochs) => `[data]
path = "/data/${name}"
split = "public"

[model]
name = "gt"
hidden = 32
layers = 4

[train]
epochs = ${epochs}
lr = 0.001

[run]
seed = 0
seeds = 1

# end
`;

/// Numbers between 0 and 1, the same each time.
export function draws(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

function metricsOf(epochs, draw) {
  const lines = [], times = [];
  for (let epoch = 1; epoch <= epochs; epoch += 1) {
    const loss = 2 * Math.exp((-3 * epoch) / epochs) + 0.05 * draw();
    const valid = 90 - 60 * Math.exp((-5 * epoch) / epochs) + draw();
    lines.push(JSON.stringify({ epoch, loss, lr: 0.001, gradient_norm: 0.5 + draw(), train: valid + 2, valid, test: valid - 1, valid_loss: loss * 1.1 }));
    times.push(JSON.stringify({ epoch, learn_ms: 10 + draw(), evaluate_ms: 2 + draw() }));
  }
  return { lines, times };
}

function traceOf(ranks, most, draw) {
  const events = [];
  for (let rank = 0; rank < ranks; rank += 1) events.push({ name: "thread_name", ph: "M", pid: 0, tid: rank, args: { name: `rank ${rank}` } });
  let [epoch, id, phases] = [0, 0, 0];
  const clock = new Array(ranks).fill(1_700_000_000_000_000);
  while (phases < most) {
    epoch += 1;
    for (let rank = 0; rank < ranks && phases < most; rank += 1) {
      for (const name of ["forward", "backward", "update"]) {
        const dur = 1000 + Math.floor(3000 * draw());
        events.push({ name, cat: "train", ph: "X", pid: 0, tid: rank, ts: clock[rank], dur, args: { epoch } });
        phases += 1;
        if (ranks > 1 && name !== "update") {
          id += 1;
          const waited = Math.floor(dur * 0.3 * draw());
          const common = { name: "attend", cat: "exchange", id, pid: 0, tid: rank };
          events.push({ ...common, ph: "b", ts: clock[rank] + 10, args: { epoch, carries: "rows", layer: 1, sent: 4096, received: 2048 } });
          events.push({ ...common, ph: "e", ts: clock[rank] + dur - 10, args: {} });
          if (waited) events.push({ name: "wait: attend", cat: "wait", ph: "X", pid: 0, tid: rank, ts: clock[rank] + dur - 10 - waited, dur: waited, args: { epoch } });
        }
        clock[rank] += dur;
      }
    }
  }
  return `[\n${events.map((event) => JSON.stringify(event)).join(",\n")}\n]\n`;
}

/// A run of several seeds: each has a folder of its own, with one event more in its trace than the seed before.
export function seedsFolder(root, { name, seeds, ranks = 2 }) {
  const folder = join(root, name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.toml"), config("cora", 30));
  writeFileSync(join(folder, "run.json"), "[]");
  for (let seed = 0; seed < seeds; seed += 1) runFolder(folder, { name: `seed-${seed}`, ranks: ranks + seed, seed: seed + 1 });
  return folder;
}

/// A run of one seed. `more` overwrites files: text, or null to leave one out.
export function runFolder(root, { name = "a", epochs = 30, ranks = 1, phases = 300, more = {}, seed = 1 } = {}) {
  const folder = join(root, name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const draw = draws(seed);
  const { lines, times } = metricsOf(epochs, draw);
  const last = JSON.parse(lines[lines.length - 1]);
  const strategies = ["halo", "gather", "ring", "heads", "grid:2x2"];
  const candidates = strategies.map((strategy, k) => ({ strategy, partition: "metis", remat: "none", feasible: k < 4, chosen: k === 0,
    time_ms: 10 + k, compute_ms: 7, comm_ms: 2, peak_bytes: 2 ** 22 + k, bytes_sent: 2 ** 20, reason: k < 4 ? null : "needs 9 GiB of 4" }));
  const purposes = ["parameters", "gradients", "optimizer", "activations", "graph", "exchange"];
  const usage = { ranks: [...Array(ranks).keys()].map((rank) => ({
    peak: Object.fromEntries(purposes.map((purpose, k) => [purpose, 1000 * (k + 1) + rank])),
    sent: [1, 2].map((layer) => ({ op: "attend", traffic: "rows", layer, bytes: 5000 * layer + rank, calls: 2 })),
    to: [...Array(ranks).keys()].map((peer) => (peer === rank ? 0 : 100 * (rank + 1) + peer)),
    kernels: { learn_ms: 1000, by_kernel: { linear: { calls: 40, ms: 400 }, attention: { calls: 20, ms: 300 }, adam: { calls: 10, ms: 2 } } } })) };
  const files = {
    "config.toml": config("cora", epochs),
    "metrics.jsonl": `${lines.join("\n")}\n`,
    "times.jsonl": `${times.join("\n")}\n`,
    "plan.json": JSON.stringify({ strategy: ranks > 1 ? "halo" : "local", ranks, why: "rows go where they are needed", remat: "none",
      partition: { method: "metis", parts: ranks }, predicted: { epoch_ms: 10, error: 0.1, peak_bytes: 2 ** 22 }, measured: { epoch_ms: 10.5, peak_bytes: 2 ** 22 }, candidates }),
    "run.json": JSON.stringify([{ command: ["graphweft", "train", "--data", "cora"], folder: "/home/a", host: "node7", version: "0.1.0 (abc)", time: 1795002216, epoch: 0, ranks }]),
    "result.json": JSON.stringify({ seed: 0, metric: "accuracy", split: "public", epochs, parameters: 36388, best: { epoch: epochs, train: last.train, valid: last.valid, test: last.test, valid_loss: last.valid_loss }, task: "class" }),
    "usage.json": JSON.stringify(usage),
    "trace.json": traceOf(ranks, phases, draw),
    ...more,
  };
  for (const [file, text] of Object.entries(files)) if (text !== null) writeFileSync(join(folder, file), text);
  return { folder, last, lines };
}

/// An array as NumPy stores it.
function npy(file, type, shape, bytes) {
  const header = `{'descr': '${type}', 'fortran_order': False, 'shape': (${shape.join(", ")},), }`;
  const padded = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + "\n";
  const start = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, padded.length & 255, padded.length >> 8]);
  writeFileSync(file, Buffer.concat([start, Buffer.from(padded), Buffer.from(bytes.buffer)]));
}

/// The arrays of a graph: for each node its neighbours, in order.
function csr(folder, neighbours) {
  const ends = neighbours.reduce((all, row) => [...all, all[all.length - 1] + row.length], [0]);
  npy(join(folder, "indptr.npy"), "<i8", [ends.length], BigInt64Array.from(ends, BigInt));
  npy(join(folder, "indices.npy"), "<u4", [ends[ends.length - 1]], Uint32Array.from(neighbours.flat()));
  return ends[ends.length - 1];
}

const ids = (file, list, columns) => npy(file, "<i8", columns ? [list.length / columns, columns] : [list.length], BigInt64Array.from(list, BigInt));

/// An empty folder of a dataset with one split.
function emptyDataset(root, name) {
  const folder = join(root, `data-${name}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "split", "default"), { recursive: true });
  return { folder, part: (name, list, columns) => ids(join(folder, "split", "default", `${name}.npy`), list, columns) };
}

const meta = (folder, facts) => writeFileSync(join(folder, "meta.toml"), Object.entries(facts).map(([key, value]) => `${key} = ${toml(value)}\n`).join(""));
const toml = (value) => (Array.isArray(value) ? `[${value.map(toml).join(", ")}]`
  : value && typeof value === "object" ? `{ ${Object.entries(value).map(([key, one]) => `${key} = ${toml(one)}`).join(", ")} }` : JSON.stringify(value));
const range = (from, to) => Array.from({ length: to - from }, (_, k) => from + k);
const ascending = (list) => list.sort((a, b) => a - b);

/// A ring of 90 nodes whose two labels, or two numbers to predict, follow from their features.
export function datasetFolder(root, kind, more = {}) {
  const [nodes, draw, isLabels] = [90, draws(3), kind !== "targets"];
  const { folder, part } = emptyDataset(root, kind);
  const edges = csr(folder, range(0, nodes).map((k) => ascending([(k + nodes - 1) % nodes, (k + 1) % nodes])));
  meta(folder, { name: kind, num_nodes: nodes, num_edges: edges, num_features: 2, num_classes: 2, symmetric: true, task: isLabels ? "node-classification" : "node-regression", ...more });
  const features = Float32Array.from({ length: 2 * nodes }, () => draw() - 0.5);
  npy(join(folder, "feat.npy"), "<f4", [nodes, 2], features);
  const found = Float32Array.from(features, (x) => (isLabels ? Number(x > 0) : 10 * x + draw()));
  npy(join(folder, "label.npy"), "<f4", [nodes, 2], found);
  ["train", "valid", "test"].forEach((name, k) => part(name, range(30 * k, 30 * k + 30)));
  return folder;
}

/// The same with two types of nodes, 70 and 20, and three of edges, of which every seventh is of the last.
export function typedFolder(root) {
  const names = [["author", 70], ["paper", 20]];
  const folder = datasetFolder(root, "typed", { edge_types: ["cites", "<i>wrote</i>", "is near"], node_types: names.map(([name, num_nodes]) => ({ name, num_nodes })) });
  const types = Uint8Array.from({ length: 180 }, (_, k) => (k % 7 === 6 ? 2 : k % 2));
  npy(join(folder, "edge_type.npy"), "|u1", [180], types);
  return { folder, nodes: names, edges: ["cites", "<i>wrote</i>", "is near"].map((name, k) => [name, types.filter((t) => t === k).length]) };
}

/// 60 paths of 4 to 23 nodes; those whose ends are joined are of another class. `ptr` says where each begins.
export function graphsFolder(root, kind) {
  const [graphs, draw] = [60, draws(4)];
  const { folder, part } = emptyDataset(root, `graphs-${kind}`);
  const sizes = range(0, graphs).map((g) => 4 + ((7 * g) % 20)), ptr = sizes.reduce((all, n) => [...all, all[all.length - 1] + n], [0]);
  const isRing = (g) => g % 2;
  const neighbours = sizes.flatMap((n, g) => range(0, n).map((k) => ascending([k > 0 ? k - 1 : isRing(g) ? n - 1 : null, k < n - 1 ? k + 1 : isRing(g) ? 0 : null]
    .filter((x) => x !== null).map((x) => x + ptr[g]))));
  const edges = csr(folder, neighbours), nodes = ptr[graphs];
  meta(folder, { name: kind, num_nodes: nodes, num_edges: edges, num_features: 2, num_classes: kind === "class" ? 2 : 1, symmetric: true, task: kind === "class" ? "graph-classification" : "graph-regression" });
  ids(join(folder, "graph_ptr.npy"), ptr);
  npy(join(folder, "feat.npy"), "<f4", [nodes, 2], Float32Array.from({ length: 2 * nodes }, () => draw()));
  if (kind === "class") ids(join(folder, "graph_label.npy"), range(0, graphs).map(isRing));
  else npy(join(folder, "graph_label.npy"), "<f4", [graphs, 1], Float32Array.from(sizes, (n) => n / 10));
  part("train", range(0, 30));
  part("valid", range(30, 40));
  part("test", range(40, 60));
  return { folder, graphs, nodes, largest: Math.max(...sizes), test: sizes.slice(40) };
}

/// Links within four groups of 20 nodes. Of the pairs to report on, it gives those that are none, or leaves them to
/// draws.
export function linksFolder(root, kind) {
  const [nodes, draw] = [80, draws(5)];
  const { folder, part } = emptyDataset(root, `links-${kind}`);
  const group = (k) => Math.floor(k / 20), pair = () => [Math.floor(nodes * draw()), Math.floor(nodes * draw())];
  const links = new Map();
  while (links.size < 260) { const [a, b] = ascending(pair()); if (a !== b && group(a) === group(b)) links.set(`${a} ${b}`, [a, b]); }
  const all = [...links.values()], train = all.slice(0, 180);
  const neighbours = range(0, nodes).map((k) => ascending(train.flatMap(([a, b]) => (a === k ? [b] : b === k ? [a] : []))));
  const edges = csr(folder, neighbours);
  meta(folder, { name: kind, num_nodes: nodes, num_edges: edges, num_features: 4, num_classes: 0, symmetric: true, task: "link" });
  npy(join(folder, "feat.npy"), "<f4", [nodes, 4], Float32Array.from({ length: 4 * nodes }, (_, k) => Number(group(k >> 2) === k % 4) + draw()));
  const others = () => { for (;;) { const [a, b] = pair(); if (group(a) !== group(b)) return [a, b]; } };
  const parts = { train, valid: all.slice(180, 220), test: all.slice(220, 260) };
  if (kind === "given") parts.test_neg = range(0, 50).map(others);
  for (const [name, pairs] of Object.entries(parts)) part(name, pairs.flat(), 2);
  return { folder, degree: neighbours.map((row) => row.length), test: parts.test, others: parts.test_neg };
}
