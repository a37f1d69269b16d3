import { join } from "node:path";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { report, writePage } from "../fixture";
import { drawAll, launch, open, OUT, saved } from "./browser";

let browser: Browser;
let page: Page;
let errors: string[];
const FILE = join(OUT, "page.html");

beforeAll(async () => {
  browser = await launch();
  writePage(FILE, report());
  [page, errors] = await open(browser, FILE, 1280);
  await drawAll(page);
});
afterAll(() => browser.close());

const VIEWS = [
  "result",
  "map",
  "totals",
  "timeline",
  "latency",
  "files",
  "stages",
  "seek",
  "steps",
  "fairness",
  "experiments",
];

test("all views are drawn without errors, and names are only text", async () => {
  expect(await page.$$eval("section[data-drawn]", (all) => all.map((each) => each.id))).toEqual(VIEWS);
  expect(errors).toEqual([]);
  expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  expect(await page.$$eval("img, #app script", (all) => all.length)).toBe(0);
  expect(await page.$eval("#files", (element) => element.textContent)).toContain(
    "<script>window.hacked=1</script>",
  );
  const byStage = await page.$eval("#stages", (element) => element.textContent);
  for (const part of ["/boot/vmlinuz", "boot loader", "(in no file)", "6.00 MiB/s"])
    expect(byStage).toContain(part);
  expect(await page.$$eval("section .empty", (all) => all.map((each) => each.textContent))).toEqual([]);
});

test("CSV of requests has each request", async () => {
  const lines = (await saved(page, "seek", "CSV", "headstart-seek.csv")).toString().trim().split("\r\n");
  expect(lines).toHaveLength(1 + 1200 + 4000);
});

test("the seek plot as SVG has its panels and both kinds, and no markup from names", async () => {
  const svg = (await saved(page, "seek", "SVG", "headstart-seek.svg")).toString();
  expect(svg).toContain("start-1.hsp, prefetch and background");
  expect(svg).toContain("<image");
  expect(svg).not.toContain("<script");
  expect(svg).not.toContain("data-transient");
});

test("the latency histogram counts what a program waits for, and a filter takes it away", async () => {
  const sum = (csv: string): number[] => {
    const rows = csv
      .trim()
      .split("\r\n")
      .slice(1)
      .map((row) => row.split(",").slice(3).map(Number));
    return [0, 1].map((kind) => rows.reduce((total, row) => total + row[kind]!, 0));
  };
  const all = sum((await saved(page, "latency", "CSV", "headstart-latency.csv")).toString());
  const requests = (await saved(page, "seek", "CSV", "headstart-seek.csv")).toString().split("\r\n");
  expect(all).toEqual([requests.filter((row) => row.includes(",demand,")).length, 0]);
  await page.click("details.filters summary");
  await page.click("input[name=demand]");
  await drawAll(page);
  expect(await page.$eval("#latency .empty", (element) => element.textContent)).toContain("waits for");
  await page.click("input[name=demand]");
  await drawAll(page);
});

/** The size of a PNG, and how many different colours are in it. */
async function pictureOf(png: Buffer): Promise<{ width: number; height: number; colours: number }> {
  expect(png.subarray(1, 4).toString()).toBe("PNG");
  return page.evaluate(async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
    const drawing = canvas.getContext("2d")!;
    drawing.drawImage(image, 0, 0);
    const pixels = new Uint32Array(drawing.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return { width: canvas.width, height: canvas.height, colours: new Set(pixels).size };
  }, png.toString("base64"));
}

test("PNGs are the pictures, at twice their size", async () => {
  for (const view of ["seek", "steps", "latency", "timeline"]) {
    const size = await page.$eval(`#${view} svg.picture`, (svg) => {
      const picture = svg;
      return { width: picture.width.baseVal.value, height: picture.height.baseVal.value };
    });
    const found = await pictureOf(await saved(page, view, "PNG", `headstart-${view}.png`));
    expect([found.width, found.height]).toEqual([2 * size.width, Math.floor(2 * size.height)]);
    expect(found.colours).toBeGreaterThan(20);
  }
  const map = await pictureOf(await saved(page, "map", "PNG", "headstart-map.png"));
  const pane = await page.$eval(".pane canvas.cells", (canvas) => canvas.width);
  expect(map.width).toBeGreaterThan(2 * pane);
  expect(map.colours).toBeGreaterThan(5);
});

test("the filters of process and time choose requests, and Reset gives all back", async () => {
  const rows = async (): Promise<string[][]> =>
    (await saved(page, "seek", "CSV", "headstart-seek.csv"))
      .toString()
      .trim()
      .split("\r\n")
      .slice(1)
      .map((row) => row.split(","));
  const all = await rows();
  const process = await page.$("xpath///label[starts-with(., 'Process')]/select");
  const init = await page.$$eval("select option", (options) => {
    const option = options.find((each) => each.textContent === "init (1)")!;
    return option.value;
  });
  await process!.select(init);
  await drawAll(page);
  const some = await rows();
  expect(some).toHaveLength(all.filter((row) => row.at(-1) === "init (1)").length);
  expect(some.every((row) => row.at(-1) === "init (1)")).toBe(true);
  const time = async (name: string, value: string): Promise<void> => {
    await page.$eval(
      `input[name=${name}]`,
      (field, to) => {
        field.value = to;
        field.dispatchEvent(new Event("change"));
      },
      value,
    );
    await drawAll(page);
  };
  await time("from", "1");
  await time("to", "1.5");
  const between = (row: string[]): boolean => Number(row[1]) >= 1 && Number(row[1]) <= 1.5;
  // The step of a request is from the one before it that is shown.
  const withoutStep = (row: string[]): string[] => row.filter((_, column) => column !== 4);
  expect((await rows()).map(withoutStep)).toEqual(some.filter(between).map(withoutStep));
  expect(await page.$eval("#latency table", (table) => table.textContent)).not.toContain("NaN");
  await page.$$eval("button", (buttons) => buttons.find((each) => each.textContent === "Reset")!.click());
  await drawAll(page);
  expect(await rows()).toHaveLength(all.length);
});

test("the theme can be chosen, and pictures follow", async () => {
  const surface = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await surface();
  const choice = await page.$("xpath///label[starts-with(., 'Colours')]/select");
  await choice!.select("dark");
  await drawAll(page);
  expect(await surface()).not.toBe(light);
  const svg = (await saved(page, "latency", "SVG", "headstart-latency.svg")).toString();
  expect(svg).toContain("#ff8f4d");
  expect(svg).not.toContain("#d55e00");
  await choice!.select("system");
  await drawAll(page);
  expect(await surface()).toBe(light);
});

test("the map shows states as colours, and the playback changes them", async () => {
  const colours = () =>
    page.$eval(".pane canvas.cells", (canvas) => {
      const element = canvas;
      const pixels = element.getContext("2d")!.getImageData(0, 0, element.width, element.height).data;
      let read = 0;
      for (let i = 0; i < pixels.length; i += 4)
        read += Number(pixels[i] === 0xd5 && pixels[i + 1] === 0x5e && pixels[i + 2] === 0);
      return read;
    });
  const setSlider = (value: number) =>
    page.$eval(
      "#map input[type=range]",
      (slider, to) => {
        slider.value = String(to);
        slider.dispatchEvent(new Event("input"));
      },
      value,
    );
  const end = await colours();
  await setSlider(200);
  const early = await colours();
  await setSlider(0);
  expect(early).toBeGreaterThan(100);
  expect(end).toBeGreaterThan(early);
  await page.click("#map .play");
  await page.waitForFunction(
    () => Number(document.querySelector<HTMLInputElement>("#map input[type=range]")!.value) > 20,
  );
  await page.click("#map .play");
  expect(await colours()).toBeGreaterThan(0);
  await setSlider(1000);
  expect(await colours()).toBe(end);
});

test("the keyboard moves on the map and in pictures", async () => {
  await page.focus("#map canvas.cells");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("+");
  expect(await page.$eval("#map .pane .readout", (element) => element.textContent)).toMatch(
    /^Block 1 · .*hot chunk 0/,
  );
  await page.$eval("#latency .picture", (picture) => (picture as SVGSVGElement).focus());
  await page.keyboard.press("ArrowLeft");
  expect(await page.$eval("#latency .readout", (element) => element.textContent)).toMatch(
    /demand|no requests/,
  );
});

test("the first screen has the sentence and the chart, also of a telephone", async () => {
  const [shown, wrong] = await open(browser, FILE, 390);
  expect(await shown.$eval("#result h2", (element) => element.textContent)).toContain("2.40 s instead of");
  const box = await shown.$eval("#result .chart", (element) => {
    const { x, width, bottom } = element.getBoundingClientRect();
    return { x, width, bottom };
  });
  expect(box).toMatchObject({ x: 10, width: 370 });
  expect(box.bottom).toBeLessThan(500);
  expect(await shown.$$eval(".inputs li", (all) => all.length)).toBe(2);
  expect(wrong).toEqual([]);
  await shown.close();
  const file = (await saved(page, "result", "SVG", "headstart-result.svg")).toString();
  expect(file).toContain("prefers-color-scheme: dark");
  expect(file).not.toMatch(/<script|<img/);
});

test("only views that have data are shown, and only the inputs of one story at a time", async () => {
  const file = join(OUT, "stories.html");
  const data = report([50, 60]);
  const [first] = data.stories;
  const only = (input: number) => ({
    ...first!,
    title: `Story ${input}`,
    bars: first!.bars.slice(input + 1),
  });
  data.stories = [
    { ...only(0), bars: [first!.bars[1]!], after: 0, before: 0 },
    { ...only(1), after: 0, before: 0 },
  ];
  data.disks.push({ ...data.disks[0]!, hot: null, zero: null, files: null });
  data.inputs[1] = { ...data.inputs[1]!, disk: 1, stage_files: null };
  data.experiments = [];
  writePage(file, data);
  const [shown, wrong] = await open(browser, file, 1280);
  const visible = () => shown.$$eval("section:not([hidden])", (all) => all.map((each) => each.id));
  const links = () => shown.$$eval("nav a:not([hidden])", (all) => all.map((each) => each.hash.slice(1)));
  const one = VIEWS.filter((view) => view !== "experiments");
  expect([await visible(), await links()]).toEqual([one, one]);
  expect(await shown.$$eval(".pane h3", (all) => all.map((each) => each.title))).toEqual(["start-0.hsp"]);
  const choice = await shown.$("xpath///label[starts-with(., 'Details of')]/select");
  await choice!.select("1");
  await drawAll(shown);
  expect(await visible()).toEqual(one.filter((view) => !["files", "stages"].includes(view)));
  expect(await shown.$$eval(".pane h3", (all) => all.map((each) => each.title))).toEqual(["start-1.hsp"]);
  expect(await shown.$eval(".player output", (element) => element.textContent)).toBe("3.00 s");
  expect(wrong).toEqual([]);
  await shown.close();
});

test("screenshots in both widths and themes; the page is not wider than the screen", async () => {
  for (const width of [1280, 390]) {
    for (const dark of [false, true]) {
      const [shown, wrong] = await open(browser, FILE, width, dark);
      await drawAll(shown);
      expect(await shown.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      await shown.screenshot({
        path: join(OUT, `page-${width}-${dark ? "dark" : "light"}.png`),
        fullPage: true,
      });
      expect(wrong).toEqual([]);
      await shown.close();
    }
  }
});

test("no data, damaged data and a newer version are told", async () => {
  const file = join(OUT, "bad.html");
  for (const [data, message] of [
    [null, "no data"],
    [{ ...report([1]), version: 9 }, "version 9"],
    [{ version: 1 }, "cannot be read"],
  ] as const) {
    writePage(file, data);
    const [shown, wrong] = await open(browser, file, 1280);
    expect(await shown.$eval("#app", (element) => element.textContent)).toContain(message);
    expect(wrong).toEqual([]);
    await shown.close();
  }
  writePage(file, report([1, 0]));
  const [single, wrong] = await open(browser, file, 390);
  await drawAll(single);
  expect(wrong).toEqual([]);
});
