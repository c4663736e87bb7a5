// What the tests of the page share: the browser, a page that is watched, the checker of accessibility.
// GRAPHWEFT names the program, CHROMIUM the browser, SCREENSHOTS a folder for pictures.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

export const program = process.env.GRAPHWEFT || "graphweft";
export const pictures = process.env.SCREENSHOTS || join(tmpdir(), "graphweft-report");
export const root = mkdtempSync(join(tmpdir(), "report-"));
const axe = readFileSync(new URL("./node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
export let browser;

before(async () => {
  mkdirSync(pictures, { recursive: true });
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: flags });
});
after(async () => {
  await browser.close();
  rmSync(root, { recursive: true, force: true });
});

/// Runs the program.
export const graphweft = (...args) => execFileSync(program, args, { stdio: ["ignore", "pipe", "inherit"], encoding: "utf8" });

/// The page of these runs.
export function report(name, folders) {
  const file = join(root, `${name}.html`);
  graphweft("report", ...folders, "-o", file);
  return file;
}

export const ready = (page) => page.waitForFunction(() => document.documentElement.dataset.ready === "true", null, { timeout: 20000 });

/// Opens a page and notes what it must not do: say something on the console, fail, or ask a network.
export async function open(file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1250, height: 900 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) wrong.push(`request: ${request.url()}`); });
  page.on("dialog", (dialog) => { wrong.push("dialog"); dialog.dismiss(); });
  await page.goto(`file://${file}`);
  await ready(page);
  page.close_ = async () => { await context.close(); assert.deepEqual(wrong, []); };
  return page;
}

/// The number on the card of this name.
export const figure = (page, name) => page.evaluate((wanted) => {
  const card = [...document.querySelectorAll(".figure")].find((one) => one.querySelector("span").textContent === wanted);
  return card ? card.querySelector("b").textContent : null;
}, name);

/// The rows of a table, each with the texts of its cells.
export const rowsOf = (page, selector) => page.locator(`${selector} tbody tr`).evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));

/// Fails where the checker of accessibility finds something serious.
export async function seriousProblems(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run());
  const serious = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  assert.deepEqual(serious.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 4).join(", ")}`), []);
}
