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

/// A ring of 90 nodes whose two labels, or two numbers to predict, follow from their features.
export function datasetFolder(root, kind) {
  const [folder, nodes, draw] = [join(root, `data-${kind}`), 90, draws(3)];
  const isLabels = kind === "labels";
  mkdirSync(join(folder, "split", "default"), { recursive: true });
  writeFileSync(join(folder, "meta.toml"), `name = "${kind}"\nnum_nodes = ${nodes}\nnum_edges = ${2 * nodes}\nnum_features = 2\nnum_classes = 2\nsymmetric = true\ntask = "${isLabels ? "node-classification" : "node-regression"}"\n`);
  const features = Float32Array.from({ length: 2 * nodes }, () => draw() - 0.5);
  const neighbours = Array.from({ length: nodes }, (_, k) => [(k + nodes - 1) % nodes, (k + 1) % nodes].sort((a, b) => a - b));
  npy(join(folder, "indptr.npy"), "<i8", [nodes + 1], BigInt64Array.from({ length: nodes + 1 }, (_, k) => BigInt(2 * k)));
  npy(join(folder, "indices.npy"), "<u4", [2 * nodes], Uint32Array.from(neighbours.flat()));
  npy(join(folder, "feat.npy"), "<f4", [nodes, 2], features);
  const found = Float32Array.from(features, (x) => (isLabels ? Number(x > 0) : 10 * x + draw()));
  npy(join(folder, "label.npy"), "<f4", [nodes, 2], found);
  const part = (name, from) => npy(join(folder, "split", "default", `${name}.npy`), "<i8", [30], BigInt64Array.from({ length: 30 }, (_, k) => BigInt(from + k)));
  ["train", "valid", "test"].forEach((name, k) => part(name, 30 * k));
  return folder;
}
