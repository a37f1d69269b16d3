/** What happened when: stages, processes, the medium, waits, and how far the prefetch was ahead. */
import * as Plot from "@observablehq/plot";
import { Spread, union } from "../bins";
import type { Context } from "../context";
import { BLOCK_BYTES, DEMAND, hasTimes, KINDS, WARM, type Run } from "../data";
import { colour } from "../palette";
import { frame, hatch, plot, ticks, type Panel } from "../picture";
import type { ViewSpec } from "../section";
import { answered } from "../stats";
import { treeOf } from "../tree";
import * as text from "../text";
import { byKind } from "./categories";

const MIB = 1 << 20;
/** More rows of processes than this are left out, the shortest ones. */
const MOST_ROWS = 24;
/** Categories of areas that are no kinds of requests, so that each looks different. */
const BUSY = 5;
const CPU = 6;
/** Processor time is told in hundredths of a second. */
const TICK = 0.01;
/** Room above the first panel for the names of the lines. */
const NAMES = 30;

interface Series {
  starts: number[];
  busy: Float64Array;
  /** How many processors were in use; empty where that is not known. */
  cpu: Float64Array;
  waits: Float64Array;
  /** Of each kind, bytes. */
  bytes: Float64Array[];
  lead: { low: number; middle: number }[];
  width: number;
  /** When the medium had served its last request. */
  idle: number | null;
}

export const timeline: ViewSpec = {
  id: "timeline",
  title: "Timeline",
  about: "What happened when. Lines mark when the start was ready and when the medium became idle.",
  options: {},
  has: ({ group }) => group.runs.some(hasTimes),
  make: (context, width) => {
    const runs = context.runs.filter(hasTimes);
    if (runs.length === 0) return "No input has requests, stages or processes.";
    const bins = Math.max(40, Math.floor((width - 92) / 3));
    const series = runs.map((run) => measure(context, run, bins));
    const panels = runs.flatMap((run, i) => panelsOf(context, run, series[i]!, series, width));
    const columns = ["input", "at_s", "medium_busy_ratio", "demand_wait_ratio", "processors"];
    columns.push(...KINDS.map((kind) => `${kind}_bytes`), "least_lead_s", "median_lead_s");
    function* rows(): Generator<text.CellValue[]> {
      for (const [r, run] of runs.entries()) {
        const { starts, busy, cpu, waits, bytes, lead } = series[r]!;
        for (const [bin, at] of starts.entries()) {
          const sums = bytes.map((kind) => Math.round(kind[bin]!));
          const { low, middle } = lead[bin]!;
          yield [context.nameOf(run), at, busy[bin]!, waits[bin]!, cpu[bin] ?? null, ...sums, low, middle];
        }
      }
    }
    const { legend } = byKind(context);
    if (runs.some((run) => run.requests)) legend.push({ text: "medium busy", category: BUSY });
    if (runs.some((run) => run.cpu.length > 0)) legend.push({ text: "processors in use", category: CPU });
    return { panels, legend, below: [], table: () => ({ columns, rows: rows() }) };
  },
};

function measure(context: Context, run: Run, bins: number): Series {
  const [from, to] = context.timeDomain;
  const width = (to - from) / bins;
  const chosen = context.chosenOf(run);
  const requests = run.requests;
  const spread = (): Spread => new Spread(from, width, bins);
  const bytes = KINDS.map(spread);
  const share = (starts: number[], ends: number[]): { sums: Float64Array; last: number | null } => {
    const sum = spread();
    const open = union(Float64Array.from(starts), Float64Array.from(ends));
    for (const [start, end] of open) sum.add(start, end, end - start);
    return {
      sums: sum.sums().map((value) => Math.min(1, value / width)),
      last: open[open.length - 1]?.[1] ?? null,
    };
  };
  const served: [number[], number[]] = [[], []];
  const waited: [number[], number[]] = [[], []];
  for (const i of chosen) {
    const end = answered(requests!, i);
    const start = requests!.at[i]! + requests!.wait[i]!;
    bytes[requests!.kind[i]!]!.add(start, end, requests!.blocks[i]! * BLOCK_BYTES);
    served[0].push(start);
    served[1].push(end);
    if (requests!.kind[i] === DEMAND) {
      waited[0].push(requests!.at[i]!);
      waited[1].push(end);
    }
  }
  const busy = share(...served);
  const cpu = spread();
  for (const used of run.cpu) cpu.add(used.from_s, used.to_s, used.cpu_s);
  return {
    starts: Array.from({ length: bins }, (_, bin) => from + bin * width),
    busy: busy.sums,
    cpu: run.cpu.length > 0 ? cpu.sums().map((sum) => sum / width) : new Float64Array(),
    waits: share(...waited).sums,
    bytes: bytes.map((each) => each.sums()),
    lead: leads(context, run, from, width, bins),
    width,
    idle: busy.last,
  };
}

function leads(context: Context, run: Run, from: number, width: number, bins: number): Series["lead"] {
  const lists: number[][] = Array.from({ length: bins }, () => []);
  const lead = run.disk && run.requests ? context.blocksOf(run).lead : null;
  lead?.at.forEach((at, i) =>
    lists[Math.min(bins - 1, Math.floor((at - from) / width))]?.push(lead.lead[i]!),
  );
  return lists.map((list) => {
    list.sort((a, b) => a - b);
    return { low: list[0] ?? NaN, middle: list[Math.floor(list.length / 2)] ?? NaN };
  });
}

function panelsOf(context: Context, run: Run, own: Series, all: Series[], width: number): Panel[] {
  const name = context.nameOf(run);
  const marks = lines(run, own);
  const panels: Panel[] = [];
  const bars = barsOf(context, run);
  // The first panel has the names of the lines above it, where they cover nothing.
  const names = linesNames(context, run, own);
  if (bars.length > 0)
    panels.push(gantt(context, `${name}, stages and processes`, bars, [...marks, ...names], width));
  const ink = (category: number): string => colour(context.theme, category);
  const percent: Plot.ScaleOptions = { domain: [0, 1], label: null, ticks: [0, 0.5, 1], tickFormat: "%" };
  const tell = (values: Float64Array) => (bin: number) => `${(100 * (values[bin] ?? 0)).toFixed(0)} %`;
  const area = (values: Float64Array, fill: string): Plot.Markish[] => [
    Plot.areaY(values, {
      x: (_, i) => own.starts[i]!,
      y: (value: number) => value,
      curve: "step-after",
      fill,
      stroke: "currentColor",
      strokeWidth: 0.4,
    }),
  ];
  const add = (
    what: string,
    y: Plot.ScaleOptions,
    own_marks: Plot.Markish[],
    say: (bin: number) => string,
  ): void => {
    const above = panels.length === 0 ? names : [];
    panels.push(
      timePanel(
        context,
        own,
        `${name}, ${what}`,
        y,
        [...own_marks, ...marks, ...above],
        say,
        width,
        above.length > 0,
      ),
    );
  };
  if (own.cpu.length > 0) {
    const most = Math.max(1, ...all.flatMap((series) => [...series.cpu]));
    add(
      "processors in use",
      { domain: [0, most], label: null, ticks: 3, grid: true },
      area(own.cpu, hatch("timeline", CPU)),
      (bin) => (own.cpu[bin] ?? 0).toFixed(2),
    );
  }
  if (!run.requests) return panels;
  add("medium busy", percent, area(own.busy, hatch("timeline", BUSY)), tell(own.busy));
  add(
    "transfer rate (MiB/s)",
    rateScale(all),
    stacked(own),
    (bin) =>
      KINDS.map((kind, k) => [kind, own.bytes[k]![bin] ?? 0] as const)
        .filter(([, sum]) => sum > 0)
        .map(([kind, sum]) => `${kind} ${text.bytes(sum / own.width)}/s`)
        .join(", ") || "nothing",
  );
  add(
    "time in which a demand read waits",
    percent,
    area(own.waits, hatch("timeline", DEMAND)),
    tell(own.waits),
  );
  if (own.lead.some(({ low }) => !Number.isNaN(low))) {
    const values = all.flatMap((series) => series.lead.flatMap(({ low, middle }) => [low, middle]));
    const known = values.filter((value) => !Number.isNaN(value));
    const domain: [number, number] = [Math.min(0, ...known), Math.max(0, ...known)];
    const x = (_: unknown, i: number): number => own.starts[i]! + own.width / 2;
    const lead = own.lead;
    const drawn = [
      Plot.ruleY([0]),
      Plot.dot(lead, { x, y: "middle", fill: ink(1), r: 2 }),
      Plot.dot(lead, { x, y: "low", stroke: ink(0), symbol: "times", r: 2.5 }),
    ];
    add(
      "seconds that prefetch is ahead: median ●, least ×",
      { domain, label: null, ticks: 4, grid: true },
      drawn,
      (bin) =>
        Number.isNaN(lead[bin]?.low ?? NaN)
          ? "no read of a prefetched block"
          : `median ${text.seconds(lead[bin]!.middle)}, least ${text.seconds(lead[bin]!.low)}`,
    );
  }
  return panels;
}

function rateScale(all: Series[]): Plot.ScaleOptions {
  let most = 1e-3;
  for (const { bytes, width } of all) {
    bytes[0]!.forEach((_, bin) => {
      const sum = bytes.reduce((total, kind) => total + kind[bin]!, 0);
      most = Math.max(most, sum / width / MIB);
    });
  }
  return { domain: [0, most], label: null, ticks: 3, grid: true };
}

function stacked(own: Series): Plot.Markish[] {
  const base = new Float64Array(own.starts.length);
  return KINDS.flatMap((_, kind) => {
    if (kind === WARM || own.bytes[kind]!.every((sum) => sum === 0)) return [];
    const bars = own.starts.map((start, bin) => {
      const y1 = base[bin]!;
      base[bin]! += own.bytes[kind]![bin]! / own.width / MIB;
      return { x1: start, x2: start + own.width, y1, y2: base[bin]! };
    });
    const filled = bars.filter((bar) => bar.y2 > bar.y1);
    return [
      Plot.rect(filled, { x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: hatch("timeline", kind), inset: 0 }),
    ];
  });
}

interface Line {
  at: number;
  text: string;
  row: number;
}

function linesOf(run: Run, own: Series): Line[] {
  const found: Line[] = [];
  if (run.ready !== null) found.push({ at: run.ready, text: `ready ${text.seconds(run.ready)}`, row: 0 });
  if (own.idle !== null) found.push({ at: own.idle, text: `idle ${text.seconds(own.idle)}`, row: 1 });
  return found;
}

function lines(run: Run, own: Series): Plot.Markish[] {
  return linesOf(run, own).map(({ at, row }) =>
    Plot.ruleX([at], { stroke: "currentColor", strokeDasharray: row === 0 ? "6 3" : "2 3", clip: true }),
  );
}

/** Their names, above the frame. */
function linesNames(context: Context, run: Run, own: Series): Plot.Markish[] {
  const [from, to] = context.timeDomain;
  return linesOf(run, own)
    .filter(({ at }) => from <= at && at <= to)
    .map((line) =>
      Plot.text([line], {
        x: "at",
        frameAnchor: "top",
        textAnchor: line.at > (from + to) / 2 ? "end" : "start",
        lineAnchor: "bottom",
        dy: -3 - 13 * (1 - line.row),
        text: "text",
        fill: "currentColor",
      }),
    );
}

interface Bar {
  row: string;
  label: string;
  from: number;
  to: number;
  category: number;
  /** How far its label is moved to the right. */
  depth: number;
}

/** Stages, then processes as a tree; where the input names none, the time in which each made requests. */
function barsOf(context: Context, run: Run): Bar[] {
  const stages = run.stages.map((stage, i) => {
    return { row: `s${i}`, label: stage.name, from: stage.from_s, to: stage.to_s, category: 2, depth: 0 };
  });
  const places = treeOf([...run.lives].sort((a, b) => b.to - b.from - (a.to - a.from)).slice(0, MOST_ROWS));
  let lives = places.map(({ life, depth }, i) => {
    const cpu = life.cpu === null ? "" : `, CPU ${life.cpu < TICK ? "<10 ms" : text.seconds(life.cpu)}`;
    const label = `${"└ ".repeat(Math.min(1, depth))}${life.process}${cpu}`;
    return { row: `p${i}`, label, depth, from: life.from, to: life.to, category: 1 };
  });
  if (lives.length > 0) return [...stages, ...lives];
  if (lives.length === 0 && run.requests) {
    const { at, process } = run.requests;
    const found = new Map<number, Bar>();
    for (const i of context.chosenOf(run)) {
      const own = process[i]!;
      const bar = found.get(own);
      if (bar) bar.to = at[i]!;
      else
        found.set(own, {
          row: `r${own}`,
          label: context.data.processes[own]!,
          from: at[i]!,
          to: at[i]!,
          category: 1,
          depth: 0,
        });
    }
    lives = found.size > 1 ? [...found.values()] : [];
  }
  lives.sort((a, b) => b.to - b.from - (a.to - a.from));
  return [...stages, ...lives.slice(0, MOST_ROWS).sort((a, b) => a.from - b.from)];
}

function gantt(context: Context, heading: string, bars: Bar[], marks: Plot.Markish[], width: number): Panel {
  const middle = (context.timeDomain[0] + context.timeDomain[1]) / 2;
  const labels = (atEnd: boolean): Plot.Markish =>
    Plot.text(
      bars.filter((bar) => bar.from > middle === atEnd),
      {
        x: (bar: Bar) => (atEnd ? bar.to : bar.from),
        y: "row",
        text: (bar: Bar) => text.shorten(bar.label, Math.floor(width / 18)),
        textAnchor: atEnd ? "end" : "start",
        dx: atEnd ? -3 : 3,
        fill: "currentColor",
        stroke: "var(--surface)",
        strokeWidth: 3,
        clip: true,
      },
    );
  const svg = plot({
    ...frame(width, bars.length * 18 + 42 + NAMES),
    marginTop: 10 + NAMES,
    x: { domain: context.timeDomain, label: null, ticks: ticks(width) },
    y: { type: "band", domain: bars.map((bar) => bar.row), axis: null, padding: 0.15 },
    marks: [
      Plot.barX(bars, {
        x1: "from",
        x2: (bar: Bar) => Math.max(bar.to, bar.from + (context.timeDomain[1] - context.timeDomain[0]) / 500),
        y: "row",
        fill: (bar: Bar) => colour(context.theme, bar.category),
        fillOpacity: 0.55,
        stroke: "currentColor",
        strokeOpacity: 0.4,
        clip: true,
      }),
      ...marks,
      labels(false),
      labels(true),
    ],
    color: { type: "identity" },
  });
  const describe = (x: number): string => {
    const open = bars.filter((bar) => bar.from <= x && x <= bar.to).map((bar) => bar.label);
    return `${text.seconds(x)}: ${open.slice(0, 6).join(", ") || "none"}`;
  };
  return { heading, plot: svg, time: true, describe };
}

function timePanel(
  context: Context,
  own: Series,
  heading: string,
  y: Plot.ScaleOptions,
  marks: Plot.Markish[],
  say: (bin: number) => string,
  width: number,
  hasNames: boolean,
): Panel {
  const svg = plot({
    ...frame(width, hasNames ? 130 + NAMES : 130),
    marginTop: hasNames ? 10 + NAMES : 10,
    x: { domain: context.timeDomain, label: "time (s)", ticks: ticks(width) },
    y,
    marks: [Plot.frame({ strokeOpacity: 0.3 }), ...marks],
  });
  const describe = (x: number): string =>
    `${text.seconds(x)}: ${say(Math.min(own.starts.length - 1, Math.floor((x - own.starts[0]!) / own.width)))}`;
  return { heading, plot: svg, time: true, describe };
}
