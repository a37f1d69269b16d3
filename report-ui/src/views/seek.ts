/** Address over time: where the heads of a disk would go. */
import type { Context } from "../context";
import { BLOCK_BYTES, DEMAND, fileOf, isAhead, KINDS, WARM, WRITE, type Run } from "../data";
import { ticks, type Panel } from "../picture";
import type { ViewSpec } from "../section";
import * as text from "../text";
import { categories, COLOUR_BY, type Categories } from "./categories";
import { pointsPanel } from "./points";

const GROUPS: readonly (readonly [string, (kind: number) => boolean])[] = [
  ["demand", (kind) => kind === DEMAND],
  ["prefetch and background", isAhead],
  ["reads that warm a page cache", (kind) => kind === WARM],
  ["writes", (kind) => kind === WRITE],
];

export const seek: ViewSpec = {
  id: "seek",
  title: "Seek plot",
  about:
    "Where on the disk requests read, over time. Demand and prefetch are apart; all inputs share both axes.",
  options: { colour: COLOUR_BY },
  has: (context) => context.hasRequests,
  make: (context, width, options) => {
    const runs = context.withRequests;
    if (runs.length === 0) return "No input has requests.";
    const by = categories(context, options.colour!);
    const most = runs.reduce((top, run) => Math.max(top, topOf(context, run)), 1);
    const panels: Panel[] = [];
    const grouped = runs.map((run) => groupsOf(context, run));
    GROUPS.forEach(([name], group) => {
      runs.forEach((run, index) => {
        if (grouped[index]![group]!.length === 0) return;
        panels.push(panel(context, run, name, grouped[index]![group]!, by, most, width));
      });
    });
    if (panels.length === 0) return "No request passes the filter.";
    return { panels, legend: by.legend, below: [], table: () => requestTable(context, runs) };
  },
};

/** The chosen requests of each group. */
function groupsOf(context: Context, run: Run): Uint32Array[] {
  const { kind } = run.requests!;
  const chosen = context.chosenOf(run);
  const groupOf = Uint8Array.from(KINDS, (_, each) => GROUPS.findIndex(([, belongs]) => belongs(each)));
  const counts = GROUPS.map(() => 0);
  for (const i of chosen) counts[groupOf[kind[i]!]!]!++;
  const groups = counts.map((count) => new Uint32Array(count));
  const filled = GROUPS.map(() => 0);
  for (const i of chosen) {
    const group = groupOf[kind[i]!]!;
    groups[group]![filled[group]!++] = i;
  }
  return groups;
}

function topOf(context: Context, run: Run): number {
  let top = 0;
  for (const i of context.chosenOf(run))
    top = Math.max(top, run.requests!.block[i]! + run.requests!.blocks[i]!);
  return top;
}

function panel(
  context: Context,
  run: Run,
  name: string,
  chosen: Uint32Array,
  by: Categories,
  most: number,
  width: number,
): Panel {
  const requests = run.requests!;
  const y = { type: "linear", domain: [0, most * BLOCK_BYTES] } as {
    type: "linear";
    domain: [number, number];
  };
  return pointsPanel({
    heading: `${context.nameOf(run)}, ${name}`,
    width,
    height: 210,
    theme: context.theme,
    time: true,
    x: { type: "linear", domain: context.timeDomain },
    y,
    xAxis: { label: "time (s)", ticks: ticks(width) },
    yAxis: {
      label: null,
      ticks: byteTicks(most * BLOCK_BYTES),
      tickFormat: (value: number) => text.bytes(value),
    },
    chosen,
    xOf: (i) => requests.at[i]!,
    yOf: (i) => requests.block[i]! * BLOCK_BYTES,
    category: (i) => by.of(requests, i),
    marks: [],
    names: (category) => by.legend.find((item) => item.category === category)?.text ?? "",
    place: (x, address) => {
      if (Number.isNaN(address)) return text.seconds(x);
      const block = Math.floor(address / BLOCK_BYTES);
      const file = run.disk && fileOf(run.disk, block);
      return `${text.seconds(x)}, near block ${text.count(block)}${file ? ` (${file})` : ""}`;
    },
  });
}

/** Round sizes between 0 and a largest one. */
export function byteTicks(most: number): number[] {
  let step = 2 ** Math.ceil(Math.log2(most / 5));
  if (most / step < 2.5) step /= 2;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** All chosen requests, one a row. */
export function requestTable(context: Context, runs: Run[]): text.Table {
  function* rows(): Generator<text.CellValue[]> {
    for (const run of runs) {
      const { at, block, blocks, wait, service, kind, process } = run.requests!;
      let end = 0;
      for (const i of context.chosenOf(run)) {
        const name = context.data.processes[process[i]!]!;
        const step = block[i]! - end;
        end = block[i]! + blocks[i]!;
        const numbers = [at[i]!, block[i]!, blocks[i]!, step, wait[i]!, service[i]!];
        yield [context.nameOf(run), ...numbers, KINDS[kind[i]!]!, name];
      }
    }
  }
  const columns = [
    "input",
    "at_s",
    "block",
    "blocks",
    "step_blocks",
    "wait_s",
    "service_s",
    "kind",
    "process",
  ];
  return { columns, rows: rows() };
}
