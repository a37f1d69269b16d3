import { describe, expect, test } from "vitest";
import { density, Spread, union } from "../../src/bins";
import { Blocks } from "../../src/blocks";
import { Context } from "../../src/context";
import { decodeColumn } from "../../src/column";
import { decodeReport, fileOf, findRun, groupsOf, KINDS, type Run } from "../../src/data";
import { select } from "../../src/filter";
import { cellAt, columnsFor, fit, pixel, spans } from "../../src/layout";
import type { Feed } from "../../src/live/feed";
import { Rates } from "../../src/live/rates";
import type { Story } from "../../src/model";
import { jain, percentile, shares, waitedSeconds } from "../../src/stats";
import { chart, chartFile, sentence, type Shape } from "../../src/story";
import { treeOf } from "../../src/tree";
import { bytes, csv, measure, seconds, shorten, times } from "../../src/text";
import { column, HOSTILE, report } from "../fixture";

describe("decode", () => {
  test("a column gives its values back", async () => {
    expect([...(await decodeColumn(column("f64", [0.5, 1e300]), "f64"))]).toEqual([0.5, 1e300]);
  });
  test("a column that is shorter, longer, of another type or damaged is refused", async () => {
    const good = column("u32", [1, 2, 3]);
    await expect(decodeColumn({ ...good, count: 4 }, "u32")).rejects.toThrow("shorter");
    await expect(decodeColumn({ ...good, count: 2 }, "u32")).rejects.toThrow("longer");
    await expect(decodeColumn(good, "f32")).rejects.toThrow("f32");
    await expect(decodeColumn({ ...good, data: "AAAA" }, "u32")).rejects.toThrow();
  });
  test("a newer version and unknown processes are refused", async () => {
    await expect(decodeReport({ ...report([3]), version: 5 })).rejects.toThrow("version 5");
    const bad = report([3]);
    bad.inputs[0]!.requests!.processes = [];
    await expect(decodeReport(bad)).rejects.toThrow("unknown");
    const short = report([3]);
    short.inputs[0]!.stage_files!.bytes = column("f64", [1]);
    await expect(decodeReport(short)).rejects.toThrow("differ in length");
  });
  test("inputs share the names of processes, and blocks know their files", async () => {
    const data = await decodeReport(report([300, 300]));
    expect(data.processes).toEqual(["init (1)", `${HOSTILE} (77)`, "(not known)"]);
    const disk = data.runs[0]!.disk!;
    expect(fileOf(disk, 20_000)).toBe("/usr/bin/node");
    const [first, , last] = data.runs[0]!.stageFiles;
    expect([first!.stage, first!.requests, first!.bytes]).toEqual(["boot loader", 3, 3 * 2 ** 20]);
    expect([last!.stage, last!.file, last!.uniqueBlocks]).toEqual([HOSTILE, `/${HOSTILE}`, 1]);
    expect(fileOf(disk, 59_000)).toBeNull();
    expect(findRun({ first: Uint32Array.of(5), count: Uint32Array.of(2) }, 7)).toBe(-1);
  });
});

test("inputs are grouped by story, in its order; others come with the disk, or last", async () => {
  const data = await decodeReport(report([1, 1]));
  expect(data.groups.map(({ title, runs }) => [title, runs.length])).toEqual([["A program starts", 2]]);
  const [first, second] = data.runs as [Run, Run];
  const other = { ...first, name: "other", disk: { ...first.disk! } };
  const same = { ...first, name: "same" };
  const story = (title: string, inputs: number[]) => {
    const bar = { label: "", seconds: 1, limit_s: null, is_ours: false };
    return { ...data.stories[0]!, title, bars: inputs.map((input) => ({ ...bar, input })) };
  };
  const runs = [other, same, { ...second, disk: null }, first];
  const names = (stories: Story[]) =>
    groupsOf(stories, runs).map(({ title, runs }) => [title, ...runs.map((run) => run.name)]);
  expect(names([story("a", [3]), story("b", [2])])).toEqual([
    ["a", first.name, "same"],
    ["b", second.name],
    ["Other inputs", "other"],
  ]);
  expect(names([story("a", [3, 1])])).toEqual([["a", first.name, "same", "other", second.name]]);
  expect(names([])).toHaveLength(1);
  expect(groupsOf([], [])).toHaveLength(1);
});

test("a story is told by a sentence and a chart, which no name breaks", () => {
  const story = report([1, 1]).stories[0]!;
  expect(sentence(story)).toBe(
    "A program starts in 2.40 s instead of 3.20 s (start-0.hsp), at 1.20 of the limit.",
  );
  for (const width of [390, 720]) {
    const { shapes, height } = chart(story, width);
    const bars = shapes.filter(({ name }) => name === "rect").map(({ attributes }) => attributes);
    const end = (bar: Shape["attributes"]): number => Number(bar.x) + Number(bar.width);
    expect(bars.map(({ class: look }) => look)).toEqual(["other", "other", "ours"]);
    expect(Math.max(...bars.map(end))).toBe(width - 72);
    expect((end(bars[1]!) - Number(bars[1]!.x)) / (end(bars[2]!) - Number(bars[2]!.x))).toBeCloseTo(4 / 3, 1);
    const limits = shapes.filter(
      ({ name, attributes }) => name === "line" && attributes.x1 === attributes.x2,
    );
    expect(limits).toHaveLength(2);
    expect(Math.max(...shapes.map(({ attributes }) => Number(attributes.y ?? 0)))).toBeLessThan(height);
  }
  const file = chartFile(story);
  expect(file).toContain("&lt;script&gt;");
  expect(file).not.toMatch(/<script|<img/);
  expect(chartFile({ ...story, about: "\u0001\ud800" })).toContain(">\ufffd\ufffd</text>");
});

test("a ratio has digits where it says something", () => {
  expect([2.5, 0.004, 249.83, 0, NaN].map(times)).toEqual(["×2.50", "×0.004", "×250", "", ""]);
});

test("the filter chooses by kind, process and time", async () => {
  const requests = (await decodeReport(report([0, 2000]))).runs[1]!.requests!;
  const all = { kinds: KINDS.map(() => true), process: null, from: 0, to: 99 };
  expect(select(requests, all)).toHaveLength(2000);
  const some = select(requests, { kinds: [false, true, true, true], process: 0, from: 1, to: 2 });
  expect(some.length).toBeGreaterThan(0);
  for (const i of some) {
    expect([requests.kind[i], requests.process[i]]).toEqual([1, 0]);
    expect(requests.at[i]! >= 1 && requests.at[i]! <= 2).toBe(true);
  }
});

test("percentiles and Jain's index", () => {
  const hundred = Array.from({ length: 100 }, (_, i) => i + 1);
  expect([50, 90, 99, 100].map((p) => percentile(hundred, p))).toEqual([50, 90, 99, 100]);
  expect(percentile([], 50)).toBeNaN();
  expect(jain([3, 3, 3])).toBe(1);
  expect(jain([1, 0, 0, 0])).toBe(0.25);
});

test("amounts over time keep their sum, and open intervals are joined", () => {
  const spread = new Spread(0, 1, 4);
  spread.add(0.5, 3.5, 6);
  spread.add(2, 2, 1);
  expect([...spread.sums()]).toEqual([1, 2, 3, 1]);
  expect(union(Float64Array.of(5, 0, 1), Float64Array.of(6, 2, 3))).toEqual([
    [0, 3],
    [5, 6],
  ]);
});

test("a density grid counts each point once", () => {
  const points = {
    chosen: Uint32Array.of(0, 1, 2),
    x: (i: number) => i,
    y: () => 10,
    category: (i: number) => i % 2,
    categories: 2,
  };
  const grid = density(points, { type: "linear", domain: [0, 2] }, { type: "log", domain: [1, 100] }, 2, 2);
  expect(grid.total).toBe(3);
  expect([...grid.counts]).toEqual([0, 0, 0, 0, 1, 0, 1, 1]);
});

test("the map's layout finds the cell that it drew", () => {
  const columns = columnsFor(1000, 200, 100);
  for (const zoom of [1, 0.1, 7.3]) {
    const whole = fit(1000, columns, 200, 100);
    const view = { scale: whole.scale * zoom, x: whole.x, y: whole.y };
    const [from, to] = spans(view.x, view.scale, columns, 200);
    for (let c = 0; c < columns; c++) {
      const p = pixel(view.x, view.scale, c);
      if (p >= 0 && p < 200) expect(from[p]! <= c && c < to[p]!).toBe(true);
    }
  }
  const view = fit(1000, columns, 200, 100);
  expect(cellAt(view, 1000, columns, view.x + 1, view.y + 1)).toBe(0);
  expect(cellAt(view, 1000, columns, -5, 0)).toBe(-1);
});

test("the replay tells late, used and unused blocks, and goes backwards", async () => {
  const small = report([0], 64);
  const requests = small.inputs[0]!.requests!;
  small.disks[0]!.hot = null;
  small.disks[0]!.zero = null;
  requests.at_s = column("f64", [0, 1, 2, 3]);
  requests.block = column("u32", [0, 1, 0, 9]);
  requests.blocks = column("u32", [3, 1, 1, 1]);
  requests.wait_s = column("f32", [0, 0, 0, 0]);
  requests.service_s = column("f32", [1.5, 0.1, 0.1, 0.1]);
  requests.kind = column("u8", [1, 0, 0, 0]);
  requests.process = column("u32", [0, 0, 0, 0]);
  requests.part = column("u8", [0, 0, 0, 0]);
  const run = (await decodeReport(small)).runs[0]!;
  const blocks = new Blocks(run, Uint32Array.of(0, 1, 2, 3));
  const end = blocks.finalCounts();
  expect([end.late, end.used, end.unused, end.read, end.cold]).toEqual([1, 1, 1, 1, 60]);
  expect([...blocks.lead.lead]).toEqual([-0.5, 0.5]);
  blocks.goTo(3, () => undefined);
  expect(blocks.goTo(0.5, () => undefined)).toBe(true);
  expect([...blocks.states.slice(0, 4)]).toEqual([5, 5, 4, 0]);
});

test("numbers and CSV", () => {
  expect([seconds(0.0123), seconds(12), bytes(1536), measure("hit_ratio", 0.5)]).toEqual([
    "12.3 ms",
    "12.0 s",
    "1.50 KiB",
    "50.0 %",
  ]);
  expect(shorten("abcdefghij", 5)).toBe("ab…ij");
  expect(csv({ columns: ["a"], rows: [['x"y,'], [null], [2]] }).join("")).toBe('a\r\n"x""y,"\r\n\r\n2\r\n');
});

test("what a page cache takes is no program's, and is not said to be used", async () => {
  const small = report([0], 64);
  const requests = small.inputs[0]!.requests!;
  small.disks[0]!.hot = null;
  small.disks[0]!.zero = null;
  requests.kinds = ["prefetch", "warm", "demand"];
  requests.at_s = column("f64", [0, 1, 2]);
  requests.block = column("u32", [0, 0, 5]);
  requests.blocks = column("u32", [3, 2, 1]);
  requests.wait_s = column("f32", [0, 0, 0]);
  requests.service_s = column("f32", [1.5, 0.6, 0.1]);
  requests.kind = column("u8", [0, 1, 2]);
  requests.process = column("u32", [0, 0, 0]);
  requests.part = column("u8", [0, 0, 0]);
  const data = await decodeReport(small);
  const context = new Context(data);
  const run = data.runs[0]!;
  expect(context.chosenOf(run).length).toBe(3);
  // Only the demand read is waited for: not what warms a cache, or comes ahead.
  expect([...context.waitedOf(run)]).toEqual([2]);
  expect(waitedSeconds(run.requests!, context.chosenOf(run))).toBeCloseTo(0.1);
  const end = new Blocks(run, context.chosenOf(run)).finalCounts();
  expect([end.late, end.cached, end.used, end.unused, end.read]).toEqual([0, 2, 0, 1, 1]);
});

test("a request that brought several runs of blocks is one request", async () => {
  const small = report([0], 64);
  const requests = small.inputs[0]!.requests!;
  requests.at_s = column("f64", [0, 0, 1]);
  requests.block = column("u32", [0, 9, 5]);
  requests.blocks = column("u32", [3, 2, 1]);
  requests.wait_s = column("f32", [0, 0, 0]);
  requests.service_s = column("f32", [1.5, 1.5, 0.5]);
  requests.kind = column("u8", [1, 1, 1]);
  requests.process = column("u32", [0, 0, 0]);
  requests.part = column("u8", [0, 1, 0]);
  const context = new Context(await decodeReport(small));
  const run = context.data.runs[0]!;
  expect([...context.chosenOf(run)]).toEqual([0, 1, 2]);
  expect([...context.wholeOf(run)]).toEqual([0, 2]);
  const share = shares(run.requests!, context.chosenOf(run), run.requests!.kind).get(1)!;
  expect(share).toEqual({ requests: 2, bytes: 6 * 4096, seconds: 2 });
});

test("processes are a tree, also where a number was used twice or parents go round", () => {
  const life = (pid: number, parent: number | null, from: number, to: number) => {
    return { process: `p${pid}`, pid, parent, from, to, cpu: null };
  };
  const lives = [life(3, 2, 2, 3), life(2, 1, 1, 4), life(4, 1, 1.5, 9), life(2, 9, 6, 8), life(5, 2, 7, 8)];
  expect(treeOf(lives).map(({ life, depth }) => [life.pid, life.from, depth])).toEqual([
    [2, 1, 0],
    [3, 2, 1],
    [4, 1.5, 0],
    [2, 6, 0],
    [5, 7, 1],
  ]);
  expect(treeOf([life(1, 2, 0, 1), life(2, 1, 0, 1), life(3, 3, 0, 1)])).toHaveLength(3);
});

test("rates come from counters, and begin anew with another server", () => {
  const feed = (server: string, at: number, bytes: number): Feed => ({
    version: 1,
    generator: "",
    server,
    at_s: at,
    images: ["a"],
    image: 0,
    at: "",
    medium: "",
    is_file: false,
    map: { blocks: 0, blocks_per_cell: 1, next: 0, states: null, first: [], count: [], state: [] },
    classes: [{ name: "demand", requests: bytes / 10, bytes }],
    waits: { reads: 0, waited: 0, wait_s: at / 2, now: 0, longest_s: 0 },
    prefetch: null,
    clients: null,
  });
  const rates = new Rates();
  rates.add(feed("1", 1, 100));
  expect(rates.moments).toEqual([]);
  rates.add(feed("1", 3, 500));
  expect(rates.moments).toEqual([{ at: 3, seconds: 2, bytes: [200], requests: [20], waiting: 0.5 }]);
  rates.add(feed("1", 3, 500));
  expect(rates.moments).toHaveLength(1);
  rates.add(feed("2", 0.5, 10));
  expect(rates.moments).toEqual([]);
  for (let i = 0; i < 700; i++) rates.add(feed("2", 1 + i, i));
  expect(rates.moments).toHaveLength(600);
});
