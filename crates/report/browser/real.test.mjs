// The page of runs that the program has made, beside the files that they left.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { figure, graphweft, open, pictures, program, report, root, rowsOf, seriousProblems } from "./browser.mjs";
import { datasetFolder, graphsFolder, linksFolder, typedFolder } from "./folders.mjs";

const json = (...path) => JSON.parse(readFileSync(join(...path), "utf8"));
const lines = (...path) => readFileSync(join(...path), "utf8").trim().split("\n").map((line) => JSON.parse(line));
/// Milliseconds of what the page says, and bytes as it says them.
const msOf = (text) => parseFloat(text) * { "µs": 1e-3, ms: 1, s: 1000, min: 60000 }[text.split(" ")[1]];
const bytesOf = (x) => (x < 1024 ? `${x} B` : x >= 2 ** 20 ? `${(x / 2 ** 20).toFixed(x < 10 * 2 ** 20 ? 2 : 1)} MiB` : `${(x / 1024).toFixed(x < 10240 ? 2 : 1)} KiB`);
const sum = (list) => list.reduce((a, b) => a + b, 0);

/// The metrics of links by their definitions, from the rows of nodes that a run has left, in per cent.
function metricsOf(run, { test: links, others }) {
  const stored = readFileSync(join(run, "predictions.npy")), start = 10 + stored.readUInt16LE(8);
  const columns = 8, rows = (k) => Array.from({ length: columns }, (_, c) => stored.readFloatLE(start + 4 * (columns * k + c)));
  const score = ([a, b]) => { const [x, y] = [rows(a), rows(b)]; return sum(x.map((value, c) => value * y[c])); };
  const [found, none] = [links.map(score), others.map(score).sort((a, b) => b - a)];
  const auc = sum(found.map((x) => sum(none.map((y) => (x > y ? 1 : x === y ? 0.5 : 0))))) / found.length / none.length;
  const above = (list, x) => list.filter((y) => y >= x).length;
  const precision = sum(found.map((x) => above(found, x) / (above(found, x) + above(none, x)))) / found.length;
  const hits = (k) => (none.length < k ? 1 : found.filter((x) => x > none[k - 1]).length / found.length);
  return { "roc-auc": 100 * auc, "average-precision": 100 * precision, "hits@20": 100 * hits(20), "hits@50": 100 * hits(50) };
}

/// Trains and returns the folder.
function train(name, ...more) {
  const folder = join(root, name);
  graphweft("train", ...more, "-o", folder, "--quiet");
  return folder;
}

test("a run on four ranks is shown with the numbers of its files", async () => {
  const run = train("real", "--graph", "sbm:800:4:8:f=16", "--ranks", "4", "--epochs", "40", "model.hidden=16");
  graphweft("bench", "spmm", "--graph", "sbm:800:4:8:f=16", "--hidden", "16", "--runs", "1", "--for", run);
  const page = await open(report("real", [run]), { bypassCSP: true });
  const [metrics, times, plan, result, usage] = [lines(run, "metrics.jsonl"), lines(run, "times.jsonl"), json(run, "plan.json"), json(run, "result.json"), json(run, "usage.json")];
  assert.equal(await figure(page, "test accuracy"), `${result.best.test.toFixed(2)} %`);
  assert.equal(await figure(page, "best epoch"), String(result.best.epoch));
  assert.equal(await figure(page, "epochs"), String(metrics.length));
  const ofTimes = times.map((line) => line.learn_ms).sort((a, b) => a - b);
  const median = msOf(await figure(page, "median epoch"));
  assert.ok(Math.abs(median - ofTimes[20]) < 0.06 * ofTimes[20], `${median} and ${ofTimes[20]} of times.jsonl`);
  const facts = Object.fromEntries(await rowsOf(page, "#summary .facts"));
  assert.ok(facts.machine.includes(" core") && facts.machine.includes("GiB"), facts.machine);
  assert.deepEqual([facts.nodes, facts.classes, facts.features], ["800", "4", "16"]);
  // The plan, with every candidate.
  const choice = Object.fromEntries(await rowsOf(page, "#plan .facts"));
  assert.deepEqual([choice.strategy, choice.ranks], [plan.strategy, "4"]);
  const candidates = json(run, "candidates.json").candidates;
  assert.ok((await page.textContent("#plan")).includes(`Candidates (${candidates.length})`));
  const timed = candidates.filter((one) => one.time_ms !== null).length;
  const details = await page.locator("#plan details tbody tr").count();
  assert.equal((await page.locator("#plan table").nth(2).locator("tbody tr").count()) + details, candidates.length);
  assert.equal(await page.locator("#plan table").nth(2).locator("tbody tr").count(), timed);
  const held = (await rowsOf(page, "#plan [aria-label='Predicted against measured']"))[1];
  assert.equal(held[1], held[2], "memory is as predicted");
  // Every candidate that was looked at stands with its own numbers, in the order of the file.
  const looked = candidates.filter((one) => one.time_ms !== null);
  const shown = await rowsOf(page, "#plan [aria-label=Candidates]");
  for (const [k, one] of looked.entries()) {
    const name = [one.strategy, one.partition, one.remat !== "none" ? `again: ${one.remat}` : null].filter(Boolean).join(", ");
    // Times stand there to three digits, short ones in whole microseconds.
    const off = [one.time_ms, one.compute_ms, one.comm_ms].map((ms, at) => Math.abs(msOf(shown[k][at + 1]) - ms) - Math.max(0.006 * ms, 0.0005));
    assert.ok(shown[k][0] === name && off.every((x) => x <= 1e-4), `${shown[k].join()} beside ${JSON.stringify(one)}`);
    assert.deepEqual(shown[k].slice(4, 6), [bytesOf(one.bytes_sent), bytesOf(one.peak_bytes)]);
  }
  // Memory and messages: every number of the file, and what they add up to.
  const purposes = (await page.locator("#memory th").allTextContents()).slice(1, -1);
  const memory = await rowsOf(page, "#memory [role=region]");
  assert.equal(memory.length, 4);
  for (const [rank, { peak }] of usage.ranks.entries()) {
    assert.deepEqual(memory[rank], [String(rank), ...purposes.map((purpose) => bytesOf(peak[purpose])), bytesOf(sum(Object.values(peak)))]);
    assert.ok(Object.keys(peak).every((purpose) => peak[purpose] === 0 || purposes.includes(purpose)), purposes.join());
  }
  const sent = sum(usage.ranks.flatMap((rank) => rank.to));
  const cells = await page.locator("#messages .cells td[title]").evaluateAll((all) => all.map((cell) => cell.title));
  assert.deepEqual(cells, usage.ranks.flatMap((rank, r) => rank.to.map((x, c) => `rank ${r} to rank ${c}: ${bytesOf(x)}`)));
  assert.ok(sent > 0 && cells.filter((title) => /: 0 B$/.test(title)).length >= 4, "nothing to oneself");
  assert.ok((await page.textContent("#messages .lead")).includes(`All ranks together sent ${bytesOf(sent)}`), `${sent} bytes`);
  // Kernels by their time, and the floor that bench has stored.
  const kernels = await rowsOf(page, "#kernels [aria-label=Kernels]");
  const most = Object.entries(usage.ranks.reduce((all, rank) => {
    for (const [name, one] of Object.entries(rank.kernels.by_kernel)) all[name] = (all[name] || 0) + one.ms;
    return all;
  }, {})).sort((a, b) => b[1] - a[1])[0];
  assert.equal(kernels[0][0], most[0]);
  const share = (100 * most[1]) / sum(usage.ranks.map((rank) => rank.kernels.learn_ms));
  assert.equal(kernels[0][1], `${share.toFixed(1)} %`);
  assert.equal((await rowsOf(page, "#kernels [aria-label='Operations beside their floor']"))[0][0], "spmm");
  // All ranks are in the timeline, and all test nodes in the classes.
  assert.equal(await page.locator("#timeline tbody tr").count(), 4);
  const confused = await page.locator("#classes .cells td[title]").allTextContents();
  const nodes = sum(confused.map((text) => Number(text.replace("·", "0"))));
  assert.ok((await page.textContent("#classes .lead")).includes(`Of ${nodes} test nodes`));
  const right = sum([0, 5, 10, 15].map((k) => Number(confused[k].replace("·", "0"))));
  assert.equal(`${((100 * right) / nodes).toFixed(2)} %`, `${result.best.test.toFixed(2)} %`, "the diagonal is the score");
  for (const title of ["by number of neighbours", "by share of neighbours of the same class"]) assert.ok((await page.textContent("#classes")).includes(title));
  await seriousProblems(page);
  await page.screenshot({ path: join(pictures, "real.png"), fullPage: true });
  await page.close_();
});

test("several labels and numbers to predict have sections of their own", async () => {
  for (const [kind, title, metric] of [["labels", "Labels", "test roc-auc"], ["targets", "Predictions", "test mae"]]) {
    const data = datasetFolder(root, kind);
    const run = train(`run-${kind}`, "--data", data, "--epochs", "30", "model.hidden=8");
    const page = await open(report(kind, [run]), { bypassCSP: true });
    const best = json(run, "result.json").best.test;
    assert.equal(await figure(page, metric), kind === "labels" ? `${best.toFixed(2)} %` : best.toFixed(4));
    assert.equal(await page.locator("#classes h2").textContent(), title);
    const rows = await rowsOf(page, "#classes table");
    assert.equal(rows.length, 2, "two columns");
    if (kind === "targets") {
      // Two targets with as many nodes: the score is the mean of their errors.
      const mae = rows.map((row) => Number(row[3]));
      assert.ok(Math.abs((mae[0] + mae[1]) / 2 - best) < 2e-3 * best, `${mae} beside ${best}`);
      assert.equal(await page.locator("#classes svg").count(), 2);
    } else for (const row of rows) assert.ok(Number(row[1]) <= 30 && row[3].endsWith(" %"), row.join());
    await seriousProblems(page);
    await page.screenshot({ path: join(pictures, `${kind}.png`), fullPage: true });
    await page.close_();
  }
});

test("whole graphs are counted, named and grouped as graphs", async () => {
  const data = graphsFolder(root, "class");
  const run = train("run-graphs", "--data", data.folder, "--model", "gin", "--epochs", "20", "model.hidden=8");
  const page = await open(report("graphs", [run]), { bypassCSP: true });
  const best = json(run, "result.json").best.test;
  const facts = Object.fromEntries(await rowsOf(page, "#summary .facts"));
  assert.deepEqual([facts.task, facts.graphs, facts.nodes, facts["nodes of the largest graph"]], ["one class for each graph", String(data.graphs), String(data.nodes), String(data.largest)]);
  assert.equal(facts["edges within a class"], undefined, "labels are not those of nodes");
  assert.equal(await page.textContent("#classes .lead"), "Of 20 test graphs, by the model of the best epoch.");
  const confused = (await page.locator("#classes .cells td[title]").allTextContents()).map((text) => Number(text.replace("·", "0")));
  assert.equal(sum(confused), 20);
  assert.equal(`${(5 * (confused[0] + confused[3])).toFixed(2)} %`, `${best.toFixed(2)} %`, "the diagonal is the score");
  const text = await page.textContent("#classes");
  assert.ok(text.includes("Right among test graphs, by number of nodes") && !text.includes("neighbours"), text);
  // Every graph is in the group of its size.
  const count = (from, to) => data.test.filter((n) => n >= from && n <= to).length;
  const groups = await page.locator("#classes .bars .name").allTextContents();
  assert.deepEqual(groups, [[4, 7], [8, 15], [16, 31]].map(([from, to], k) => `${["0–7", "8–15", "16–31"][k]} (${count(from, to)} graphs)`));
  await seriousProblems(page);
  await page.screenshot({ path: join(pictures, "graphs.png"), fullPage: true });
  await page.close_();
  const numbers = graphsFolder(root, "numbers");
  const other = train("run-sizes", "--data", numbers.folder, "--model", "gin", "--epochs", "20", "model.hidden=8");
  const sizes = await open(report("sizes", [other]));
  assert.ok((await sizes.textContent("#summary")).includes("numbers for each graph"));
  assert.ok((await sizes.textContent("#classes")).includes("Mean absolute error of test graphs, by number of nodes"));
  const mae = Number((await rowsOf(sizes, "#classes [aria-label=Targets]"))[0][3]);
  const wanted = json(other, "result.json").best.test;
  assert.ok(Math.abs(mae - wanted) < 2e-3 * wanted, `${mae} beside ${wanted}`);
  await sizes.close_();
});

test("links are shown with the scores that the run has reported, and of which pairs", async () => {
  for (const kind of ["given", "drawn"]) {
    const data = linksFolder(root, kind);
    const run = train(`run-links-${kind}`, "--data", data.folder, "--model", "gcn", "--epochs", "30", "model.hidden=8", "data.embedding=8");
    const page = await open(report(`links-${kind}`, [run]), { bypassCSP: true });
    const [best, others] = [json(run, "result.json").best.test, kind === "given" ? 50 : 40];
    assert.equal(await figure(page, "test roc-auc"), `${best.toFixed(2)} %`);
    const against = `${others} pairs that are none${kind === "given" ? "" : ", drawn at random"}`;
    assert.equal(await page.textContent("#classes .lead"), `Of 40 test links and ${against}, by the model of the best epoch.`);
    const metrics = Object.fromEntries((await rowsOf(page, "#classes [aria-label='Metrics of links']")).map((row) => row.slice(0, 2)));
    assert.deepEqual(Object.keys(metrics), ["roc-auc", "average-precision", "hits@20", "hits@50", "hits@100"]);
    const remarks = (await rowsOf(page, "#classes [aria-label='Metrics of links']")).map((row) => row[2] !== "");
    assert.deepEqual(remarks, [20, 50, 100].map((k) => k > others).reduce((all, one) => [...all, one], [false, false]));
    assert.equal(metrics["roc-auc"], `${best.toFixed(2)} %`, "what the run has scored");
    const counts = (of) => page.locator(`#classes rect[data-kind="${of}"]`).evaluateAll((all) => all.reduce((n, one) => n + Number(one.dataset.count), 0));
    assert.deepEqual([await counts(0), await counts(1)], [40, others]);
    // Every link counts once, in the group of its end with fewer neighbours; their mean is the score.
    const bars = await page.locator("#classes .bars .bar").evaluateAll((all) => all.map((one) => [one.querySelector(".name").textContent, parseFloat(one.querySelector(".total").textContent)]));
    const ranges = { 0: [0, 0], 1: [1, 1], "2–3": [2, 3], "4–7": [4, 7], "8–15": [8, 15] };
    let [total, weighted] = [0, 0];
    for (const [name, score] of bars) {
      const [range, n] = [name.split(" (")[0], parseInt(name.split("(")[1], 10)];
      const least = data.test.map(([a, b]) => Math.min(data.degree[a], data.degree[b]));
      assert.equal(n, least.filter((d) => d >= ranges[range][0] && d <= ranges[range][1]).length, name);
      [total, weighted] = [total + n, weighted + n * score];
    }
    assert.equal(total, 40);
    assert.ok(Math.abs(weighted / total - best) < 0.06, `${weighted / total} beside ${best}`);
    await seriousProblems(page);
    if (kind === "given") {
      // Every metric by hand, from the rows that the run has written.
      const [wanted, list] = [metricsOf(run, data), Object.fromEntries(Object.entries(metrics).map(([name, text]) => [name, parseFloat(text)]))];
      for (const [name, score] of Object.entries(wanted)) assert.ok(Math.abs(score - list[name]) < 0.0051, `${name}: ${score} beside ${list[name]}`);
      await page.screenshot({ path: join(pictures, "links.png"), fullPage: true });
    }
    await page.close_();
  }
});

test("types of nodes and edges are counted, and scores are told by type of nodes", async () => {
  const data = typedFolder(root);
  const run = train("run-typed", "--data", data.folder, "--model", "gcn", "--epochs", "10", "model.hidden=8");
  const page = await open(report("typed", [run]), { bypassCSP: true });
  for (const [label, all] of [["Nodes by type", data.nodes], ["Edges by type, as they are stored", data.edges]]) {
    const total = sum(all.map(([, count]) => count));
    assert.deepEqual(await rowsOf(page, `#summary [aria-label="${label}"]`), all.map(([name, count]) => [name, String(count), `${((100 * count) / total).toFixed(1)} %`]));
  }
  assert.ok((await page.textContent("#classes")).includes("F1 over all labels of test nodes, by type"));
  // Nobody asked how long one rank takes: no number stands for that.
  const [alone] = await rowsOf(page, "#plan [aria-label=Candidates]");
  assert.deepEqual([alone.slice(0, 4), alone[5]], [["local", "–", "–", "–"], bytesOf(sum(Object.values(json(run, "usage.json").ranks[0].peak)))]);
  // Tested are the nodes from 60 to 89: ten authors and all papers.
  assert.deepEqual((await page.locator("#classes .bars").last().locator(".name").allTextContents()), ["author (10 nodes)", "paper (20 nodes)"]);
  await seriousProblems(page);
  await page.screenshot({ path: join(pictures, "typed.png"), fullPage: true });
  await page.close_();
});

test("names of classes are text, whatever is in their file", async () => {
  const markup = `"><img src=x onerror="window.hurt=1"><script>window.hurt=2</script>`;
  for (const [k, text] of [`${markup}\n${markup.repeat(20)}\nmore\n`, Buffer.from([255, 254, 0, 10, 128, 27, 10]), "", "\n\n", "one"].entries()) {
    const data = datasetFolder(root, "labels");
    writeFileSync(join(data, "classes.txt"), text);
    const run = train(`run-names-${k}`, "--data", data, "--epochs", "2", "model.hidden=8");
    const page = await open(report("names", [run]), { bypassCSP: true });
    assert.equal(await page.evaluate(() => window.hurt), undefined);
    assert.equal(await page.locator("main img, main script").count(), 0);
    const names = (await rowsOf(page, "#classes [aria-label=Labels]")).map((row) => row[0]);
    assert.equal(names.length, 2);
    if (typeof text === "string" && text.startsWith("\"")) assert.deepEqual(names, [markup, markup.repeat(20)]);
    if (text === "one") assert.deepEqual(names, ["one", "1"]);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 1252, "long names do not widen the page");
    await page.close_();
  }
});

test("train --report: the page is there while training goes on, renews itself, and ends with the result", { timeout: 240000 }, async () => {
  const folder = join(root, "going");
  const file = join(folder, "report.html");
  const training = spawn(program, ["train", "--graph", "sbm:300:4:8:f=16", "--epochs", "1000000", "-o", folder, "--report", "--quiet"], { stdio: "ignore" });
  const over = new Promise((done) => training.on("exit", done));
  try {
    while (!existsSync(file)) await new Promise((done) => setTimeout(done, 50));
    const page = await open(file);
    assert.ok((await page.textContent("#live")).includes("renews itself"));
    const epochs = async () => Number((await figure(page, "epochs").catch(() => null) || "0").replaceAll(",", ""));
    const before = await epochs();
    for (let k = 0; k < 600 && (await epochs()) <= before; k += 1) await page.waitForTimeout(100);
    assert.ok((await epochs()) > before, "more epochs, and nobody has done anything");
    training.kill("SIGTERM");
    assert.equal(await over, 75);
    await page.close_();
    const stopped = await open(file);
    assert.ok((await stopped.textContent("#summary .state")).startsWith("Stopped before its end"));
    assert.equal(await stopped.textContent("#live"), "");
    await stopped.close_();
  } finally {
    training.kill("SIGKILL");
  }
});
