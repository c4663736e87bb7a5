// The page of runs that the program has made, beside the files that they left.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { figure, graphweft, open, pictures, program, report, root, rowsOf, seriousProblems } from "./browser.mjs";
import { datasetFolder } from "./folders.mjs";

const json = (...path) => JSON.parse(readFileSync(join(...path), "utf8"));
const lines = (...path) => readFileSync(join(...path), "utf8").trim().split("\n").map((line) => JSON.parse(line));
const sum = (list) => list.reduce((a, b) => a + b, 0);

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
  assert.ok(Math.abs(parseFloat(await figure(page, "median epoch")) - ofTimes[20]) < 0.06, "of times.jsonl");
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
  // Memory and messages: what is shown adds up to what was counted.
  assert.equal(await page.locator("#memory tbody tr").count(), 4);
  const sent = sum(usage.ranks.flatMap((rank) => rank.to));
  const cells = await page.locator("#messages .cells td[title]").evaluateAll((all) => all.map((cell) => cell.title));
  assert.equal(cells.length, 16);
  assert.ok(sent > 0 && cells.filter((title) => /: 0 B$/.test(title)).length >= 4, "nothing to oneself");
  assert.ok((await page.textContent("#messages")).includes((sent / 1024).toFixed(sent < 10240 ? 2 : 1)) || sent >= 2 ** 20, "all bytes");
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

test("train --report: the page is there while training goes on, renews itself, and ends with the result", { timeout: 120000 }, async () => {
  const folder = join(root, "going");
  const file = join(folder, "report.html");
  const training = spawn(program, ["train", "--graph", "sbm:3000:4:8:f=16", "--epochs", "100000", "-o", folder, "--report", "--quiet"], { stdio: "ignore" });
  const over = new Promise((done) => training.on("exit", done));
  try {
    while (!existsSync(file)) await new Promise((done) => setTimeout(done, 50));
    const page = await open(file);
    assert.ok((await page.textContent("#live")).includes("renews itself"));
    const epochs = async () => Number((await figure(page, "epochs").catch(() => null) || "0").replace(",", ""));
    const before = await epochs();
    for (let k = 0; k < 200 && (await epochs()) <= before; k += 1) await page.waitForTimeout(100);
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
