import { describe, expect, test } from "vitest";
import { density, Spread, union } from "../../src/bins";
import { Blocks } from "../../src/blocks";
import { Context } from "../../src/context";
import { decodeColumn } from "../../src/column";
import { decodeReport, fileOf, findRun, KINDS } from "../../src/data";
import { select } from "../../src/filter";
import { cellAt, columnsFor, fit, pixel, spans } from "../../src/layout";
import { jain, percentile } from "../../src/stats";
import { bytes, csv, measure, seconds, shorten } from "../../src/text";
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
    await expect(decodeReport({ ...report([3]), version: 2 })).rejects.toThrow("version 2");
    const bad = report([3]);
    bad.inputs[0]!.requests!.processes = [];
    await expect(decodeReport(bad)).rejects.toThrow("unknown");
  });
  test("inputs share the names of processes, and blocks know their files", async () => {
    const data = await decodeReport(report([300, 300]));
    expect(data.processes).toEqual(["init (1)", `${HOSTILE} (77)`, "(not known)"]);
    const disk = data.runs[0]!.disk!;
    expect(fileOf(disk, 20_000)).toBe("/usr/bin/node");
    expect(fileOf(disk, 59_000)).toBeNull();
    expect(findRun({ first: Uint32Array.of(5), count: Uint32Array.of(2) }, 7)).toBe(-1);
  });
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

test("a read that warms a page cache is no program's, and what it takes is used", async () => {
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
  const data = await decodeReport(small);
  const context = new Context(data);
  const run = data.runs[0]!;
  expect(context.chosenOf(run).length).toBe(3);
  const end = new Blocks(run, context.chosenOf(run)).finalCounts();
  expect([end.late, end.used, end.unused, end.read]).toEqual([0, 2, 1, 1]);
});
