/** Pages that the program itself wrote. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Browser } from "puppeteer-core";
import { afterAll, beforeAll, expect } from "vitest";
import { drawAll, launch, open, OUT, saved } from "./browser";
import { folder, image, run, testWith } from "./program";

let browser: Browser;
let place: string;
beforeAll(async () => {
  browser = await launch();
  place = folder();
});
afterAll(async () => {
  await browser.close();
  rmSync(place, { recursive: true, force: true });
});

testWith({ root: true })(
  "before and after of a real start: map, timeline, processes, files, totals",
  async () => {
    const at = (name: string): string => join(place, name);
    const root = image(place);
    const work = `for f in /file-*; do cat "$f" >/dev/null; done; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; cat "/<b>\\"日本语' file"`;
    const command = ["--", "/bin/sh", "-c", work];
    run("profile", root, "-o", at("start.hsp"), ...command);
    run("optimize", root, "--profile", at("start.hsp"), "-o", at("fast.hsi"));
    const medium = ["--emulate", "flat-10ms-25mbs"];
    run("run", root, ...medium, "--trace", at("before.csv"), `--json=${at("before.json")}`, ...command);
    run(
      "run",
      at("fast.hsi"),
      ...medium,
      "--trace",
      at("after.csv"),
      `--json=${at("after.json")}`,
      ...command,
    );
    const inputs = ["before.csv", "after.csv", "fast.hsi", "before.json", "after.json"].map(at);
    run("report", ...inputs, "-o", at("report.html"));
    for (const width of [1280, 390]) {
      const [page, errors] = await open(browser, `file://${at("report.html")}`, width, width === 390);
      await drawAll(page);
      expect(errors).toEqual([]);
      expect(await page.$$eval(".error", (all) => all.length)).toBe(0);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      await page.screenshot({ path: join(OUT, `made-${width}.png`), fullPage: true });
      const states = async (): Promise<Map<string, number>> => {
        const rows = (await saved(page, "map", "CSV", "headstart-map.csv"))
          .toString()
          .trim()
          .split("\r\n")
          .slice(1);
        const found = new Map<string, number>();
        for (const row of rows.map((row) => row.split(","))) {
          const key = `${row[0]} ${row[3]}`;
          found.set(key, (found.get(key) ?? 0) + Number(row[2]));
        }
        return found;
      };
      const found = await states();
      expect(found.get("before.csv read")).toBeGreaterThan(500);
      const ahead =
        (found.get("after.csv cached") ?? 0) +
        (found.get("after.csv used") ?? 0) +
        (found.get("after.csv late") ?? 0);
      expect(ahead).toBeGreaterThan(500);
      expect(found.get("after.csv read") ?? 0).toBeLessThan(found.get("before.csv read")! / 4);
      // A trace and the summary of the same start are one input.
      expect(await page.$$eval(".inputs li", (all) => all.length)).toBe(2);
      expect(await page.$eval(".inputs", (list) => list.textContent)).toMatch(
        /ready after .* requests to the medium/,
      );
      expect(await page.$eval("#result h2", (heading) => heading.textContent)).toMatch(
        /instead of .*before\.csv/,
      );
      const text = (id: string): Promise<string> => page.$eval(`#${id}`, (view) => view.textContent);
      expect(await text("timeline")).toMatch(/sh \(\d+/);
      expect(await text("timeline")).toContain("processors in use");
      expect(await text("files")).toContain("/file-3");
      expect(await text("totals")).toContain("Medium busy");
      const rows = (await saved(page, "timeline", "CSV", "headstart-timeline.csv"))
        .toString()
        .trim()
        .split("\r\n");
      const column = rows[0]!.split(",").indexOf("processors");
      expect(Math.max(...rows.slice(1).map((row) => Number(row.split(",")[column])))).toBeGreaterThan(0);
      await page.close();
    }
  },
);
