/**
 * Opens a page and says what that takes, as one JSON object: `bench.ts FILE`, or without a file one of a million
 * requests that no program wrote.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { launch, OUT } from "./browser/browser";
import { report, writePage } from "./fixture";

const named = process.argv.slice(2).find((word) => word.endsWith(".html"));
const file = named ?? join(OUT, "million.html");
if (named === undefined) writePage(file, report([1_000_000], 16_000_000));
const browser = await launch();
const page = await browser.newPage();
await page.setViewport({ width: 1280, height: 900 });
const start = performance.now();
await page.goto(`file://${file}`);
await page.waitForSelector("#map[data-drawn]");
await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
const loaded = performance.now() - start;
await page.click("#map .play");
const frames = await page.evaluate(
  () =>
    new Promise<number>((done) => {
      const from = performance.now();
      let count = 0;
      const frame = (): void => {
        count++;
        const passed = performance.now() - from;
        if (passed > 3000) done((count * 1000) / passed);
        else requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    }),
);
/** The renderers' memory, each page of it shared by n processes as 1/n. */
function pssMib(): number {
  const lines = execFileSync("ps", ["-eo", "pid=,ppid=,args="]).toString().split("\n");
  const rows = lines.map((line) => /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line)).filter((row) => row !== null);
  const own = new Set([String(browser.process()!.pid)]);
  for (let size = 0; size !== own.size;) {
    size = own.size;
    for (const row of rows) if (own.has(row[2]!)) own.add(row[1]!);
  }
  const renderers = rows.filter((row) => own.has(row[1]!) && row[3]!.includes("--type=renderer"));
  const sizes = renderers.map((row) =>
    Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${row[1]!}/smaps_rollup`, "utf8"))?.[1] ?? 0),
  );
  return Math.max(...sizes) / 1024;
}
const during = pssMib();
for (const id of ["seek", "steps", "latency", "timeline", "totals", "files"]) {
  await page.$eval(`#${id}`, (element) => element.scrollIntoView());
  await page.waitForSelector(`#${id}[data-drawn]`);
}
console.log(
  JSON.stringify({
    page_bytes: statSync(file).size,
    interactive_s: loaded / 1000,
    frames_per_s: frames,
    playback_pss_mib: during,
    all_views_pss_mib: pssMib(),
  }),
);
await browser.close();
