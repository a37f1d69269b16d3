import { readFileSync, rmSync } from "node:fs";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, expect } from "vitest";
import { launch, open, OUT, saved } from "./browser";
import { folder, image, server, testWith } from "./program";

let browser: Browser;
let place: string;
let root = "";
beforeAll(async () => {
  browser = await launch();
  place = folder();
});
afterAll(async () => {
  await browser.close();
  rmSync(place, { recursive: true, force: true });
});
const made = (): string => (root ||= image(place));

/** How many blocks the legend says to have a state. */
const amount = (page: Page, state: string): Promise<number> =>
  page.$eval(`[data-state=${state}]`, (each) => Number(each.textContent.replaceAll(",", "")));

const rounds = (page: Page): Promise<number> =>
  page.$eval("#app", (app) => Number(app.getAttribute("data-live")));

/** Waits for so many further answers of the server. */
const further = async (page: Page, count: number): Promise<void> => {
  const wanted = (await rounds(page)) + count;
  await page.waitForFunction(
    (least) => Number(document.getElementById("app")!.dataset.live) >= least,
    {},
    wanted,
  );
};

/** Pixels of the map that have the colour of demand reads. */
const painted = (page: Page): Promise<number> =>
  page.$eval(".pane canvas.cells", (canvas) => {
    const { width, height } = canvas;
    const pixels = canvas.getContext("2d")!.getImageData(0, 0, width, height).data;
    let found = 0;
    for (let i = 0; i < pixels.length; i += 4)
      found += Number(pixels[i] === 0xd5 && pixels[i + 1] === 0x5e && pixels[i + 2] === 0);
    return found;
  });

testWith({ root: false })("the page of serve --http shows what clients are sent, as it happens", async () => {
  const path = made();
  const running = await server("serve", path, "--http", "127.0.0.1:0", "--ui", "0");
  const file = /served at (\S+)/.exec(running.said.join("\n"))![1]!;
  const [page, errors] = await open(browser, running.page, 1280);
  await further(page, 1);
  expect([await amount(page, "read"), await painted(page)]).toEqual([0, 0]);
  const size = readFileSync(path).length;
  const half = Math.floor(size / 8192) * 4096;
  await (await fetch(file, { headers: { range: `bytes=0-${half - 1}` } })).arrayBuffer();
  await page.waitForFunction(
    (least) => Number(document.querySelector("[data-state=read]")!.textContent.replaceAll(",", "")) >= least,
    {},
    half / 4096,
  );
  expect(await amount(page, "read")).toBe(half / 4096);
  const first = await painted(page);
  expect(first).toBeGreaterThan(100);
  await (await fetch(file)).arrayBuffer();
  await page.waitForFunction(
    (least) => Number(document.querySelector("[data-state=read]")!.textContent.replaceAll(",", "")) >= least,
    {},
    Math.ceil(size / 4096),
  );
  expect(await painted(page)).toBeGreaterThan(first * 1.5);
  expect(await page.$eval(".facts", (facts) => facts.textContent)).toContain("Connections so far");

  // The sum of the rates is what was sent.
  await further(page, 1);
  const rows = (await saved(page, "rates", "CSV", "headstart-rates.csv")).toString().trim().split("\r\n");
  expect(rows[0]).toContain("sent to clients bytes_per_s");
  const sent = rows
    .slice(1)
    .map((row) => row.split(",").map(Number))
    .reduce((sum, row) => sum + row[1]! * row[2]!, 0);
  expect(Math.round(sent)).toBe(half + size);
  const states = (await saved(page, "map", "CSV", "headstart-map.csv")).toString().trim().split("\r\n");
  expect(states.slice(1).map((row) => row.split(",").at(-1))).toEqual(["read"]);

  for (const width of [1280, 390]) {
    for (const dark of [false, true]) {
      const [shown, wrong] = await open(browser, running.page, width, dark);
      await further(shown, 2);
      expect(await shown.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      expect(await shown.$eval("html", (html) => html.dataset.theme)).toBe(dark ? "dark" : "light");
      await shown.screenshot({
        path: join(OUT, `live-${width}-${dark ? "dark" : "light"}.png`),
        fullPage: true,
      });
      expect(wrong).toEqual([]);
      await shown.close();
    }
  }
  expect(errors).toEqual([]);
  await running.end();
  await page.waitForSelector(".live-state.error");
  expect(await page.$eval(".live-state", (state) => state.textContent)).toContain("does not answer");
  await page.close();
});

testWith({ root: true })("the page of a mount shows what is read of its files", async () => {
  const path = made();
  const [disk, files] = [join(place, "disk"), join(place, "files")];
  mkdirSync(disk);
  mkdirSync(files);
  const running = await server("mount", path, disk, "--fs", files, "--foreground", "--ui", "0");
  const [page, errors] = await open(browser, running.page, 1280);
  await further(page, 1);
  const before = await amount(page, "read");
  const bytes = readFileSync(join(files, "file-7")).length;
  await page.waitForFunction(
    (least) => Number(document.querySelector("[data-state=read]")!.textContent.replaceAll(",", "")) >= least,
    {},
    before + Math.floor(bytes / 4096),
  );
  expect(await page.$eval(".facts", (facts) => facts.textContent)).toContain("Reads that waited");
  expect(errors).toEqual([]);
  await page.close();
  await running.end();
});
