/** How many requests took how long, with percentiles. */
import * as Plot from "@observablehq/plot";
import { position, type Scale } from "../bins";
import type { Context } from "../context";
import { isWaitedFor, KINDS, type Run } from "../data";
import { table } from "../dom";
import { frame, hatch, plot, type Panel } from "../picture";
import type { ViewSpec } from "../section";
import { duration, percentile, type Part } from "../stats";
import * as text from "../text";
import { byKind } from "./categories";
import { PART, timeDomain, timeTicks } from "./scatter";

const PERCENTS = [50, 90, 99] as const;
const BINS_A_DECADE = 12;

interface Bin {
  low: number;
  high: number;
  counts: number[];
}

export const latency: ViewSpec = {
  id: "latency",
  title: "Latency",
  about:
    "How long the requests took that a program waits for: not those that bring blocks ahead of it. " +
    "Lines mark the times that 50, 90 and 99 of a hundred did not exceed.",
  options: { part: PART },
  has: (context) => context.group.runs.some((run) => run.requests?.kind.some(isWaitedFor)),
  make: (context, width, options) => {
    const runs = context.withRequests.filter((run) => context.waitedOf(run).length > 0);
    if (runs.length === 0) return "No request that a program waits for passes the filter.";
    const part = options.part as Part;
    const domain = timeDomain(runs, (run) => context.waitedOf(run), part);
    const binned = runs.map((run) => histogram(context, run, part, domain));
    const most = Math.max(...binned.flat().map((bin) => total(bin)));
    const times = runs.map((run) => percentiles(context, run, part));
    const panels = runs.map((run, i) => panel(context, run, binned[i]!, times[i]!, domain, most, width));
    function* rows(): Generator<text.CellValue[]> {
      for (const [i, run] of runs.entries()) {
        for (const bin of binned[i]!) yield [context.nameOf(run), bin.low, bin.high, ...bin.counts];
      }
    }
    const columns = ["input", "from_s", "to_s", ...KINDS];
    const legend = byKind(context).legend.filter(({ category }) => isWaitedFor(category));
    const below = [percentileTable(context, runs, times)];
    return { panels, legend, below, table: () => ({ columns, rows: rows() }) };
  },
};

function total(bin: Bin): number {
  return bin.counts.reduce((a, b) => a + b, 0);
}

function histogram(context: Context, run: Run, part: Part, domain: [number, number]): Bin[] {
  const scale: Scale = { type: "log", domain };
  const length = Math.round(Math.log10(domain[1] / domain[0])) * BINS_A_DECADE;
  const edge = (i: number): number => domain[0] * (domain[1] / domain[0]) ** (i / length);
  const bins = Array.from({ length }, (_, i) => ({
    low: edge(i),
    high: edge(i + 1),
    counts: KINDS.map(() => 0),
  }));
  const at = position(scale);
  for (const i of context.waitedOf(run)) {
    const share = at(Math.max(domain[0], duration(run.requests!, i, part)));
    bins[Math.min(length - 1, Math.floor(share * length))]!.counts[run.requests!.kind[i]!]!++;
  }
  return bins;
}

function percentiles(context: Context, run: Run, part: Part): number[] {
  const sorted = Float32Array.from(context.waitedOf(run), (i) => duration(run.requests!, i, part)).sort();
  const mean = sorted.reduce((a, b) => a + b, 0) / sorted.length;
  return [...PERCENTS.map((percent) => percentile(sorted, percent)), sorted[sorted.length - 1]!, mean];
}

function percentileTable(context: Context, runs: Run[], times: number[][]): HTMLElement {
  const names = [...PERCENTS.map((percent) => `p${percent}`), "longest", "mean"];
  const rows = runs.map((run, i) => [
    context.nameOf(run),
    text.count(context.waitedOf(run).length),
    ...times[i]!.map(text.seconds),
  ]);
  return table("Percentiles", ["Input", "Requests that a program waits for", ...names], rows);
}

function panel(
  context: Context,
  run: Run,
  bins: Bin[],
  times: number[],
  domain: [number, number],
  most: number,
  width: number,
): Panel {
  const bars = bins.flatMap((bin) =>
    KINDS.map((_, kind) => {
      const base = bin.counts.slice(0, kind).reduce((a, b) => a + b, 0);
      return { x1: bin.low, x2: bin.high, y1: base, y2: base + bin.counts[kind]!, kind };
    }),
  );
  const marks: Plot.Markish[] = [Plot.ruleY([0])];
  KINDS.forEach((_, kind) => {
    const own = bars.filter((bar) => bar.kind === kind && bar.y2 > bar.y1);
    const fill = hatch("latency", kind);
    marks.push(
      Plot.rect(own, {
        x1: "x1",
        x2: "x2",
        y1: "y1",
        y2: "y2",
        fill,
        stroke: "currentColor",
        strokeWidth: 0.4,
      }),
    );
  });
  const lines = PERCENTS.map((percent, i) => ({ percent, time: Math.max(domain[0], times[i]!), row: i }));
  marks.push(
    Plot.ruleX(lines, { x: "time", stroke: "currentColor", strokeDasharray: "4 3" }),
    ...lines.map((line) =>
      Plot.text([line], {
        x: "time",
        frameAnchor: "top",
        textAnchor: "start",
        dx: 4,
        dy: line.row * 14,
        text: () => `p${line.percent}`,
        fill: "currentColor",
        stroke: "var(--surface)",
        strokeWidth: 4,
      }),
    ),
  );
  const svg = plot({
    ...frame(width, 220),
    x: {
      type: "log",
      domain,
      label: null,
      ticks: timeTicks(domain, width),
      tickFormat: (value: number) => text.seconds(value),
    },
    y: {
      domain: [0, most],
      label: null,
      grid: true,
      ticks: 4,
      tickFormat: (value: number) => text.count(value),
    },
    marks,
  });
  return {
    heading: `${context.nameOf(run)}, requests by their time`,
    plot: svg,
    time: false,
    describe: (x) => {
      const bin = bins.find(({ low, high }) => low <= x && x <= high);
      if (!bin) return text.seconds(x);
      const parts = KINDS.map((kind, i) => `${text.count(bin.counts[i]!)} ${kind}`).filter(
        (part) => !part.startsWith("0 "),
      );
      return `${text.seconds(bin.low)} to ${text.seconds(bin.high)}: ${parts.join(", ") || "no requests"}`;
    },
  };
}
