/** What colours stand for: kinds of requests, or the processes with the most of them. */
import type { Context } from "../context";
import { KINDS, type RequestTable } from "../data";
import { CATEGORIES } from "../palette";
import type { LegendItem } from "../picture";
import type { Option } from "../section";

export const COLOUR_BY: Option = {
  label: "Colour",
  choices: [
    ["kind", "by kind"],
    ["process", "by process"],
  ],
};

export interface Categories {
  of: (requests: RequestTable, i: number) => number;
  legend: LegendItem[];
}

export function categories(context: Context, by: string): Categories {
  return by === "process" ? byProcess(context) : byKind(context);
}

/** The kinds that occur. */
export function byKind(context: Context): Categories {
  const found = KINDS.map(() => false);
  for (const run of context.withRequests) {
    for (const i of context.chosenOf(run)) found[run.requests!.kind[i]!] = true;
  }
  const legend = KINDS.map((text, category) => ({ text, category })).filter(
    ({ category }) => found[category],
  );
  return { of: (requests, i) => requests.kind[i]!, legend };
}

function byProcess(context: Context): Categories {
  const { processes } = context.data;
  const counts = new Uint32Array(processes.length);
  for (const run of context.withRequests) {
    for (const i of context.chosenOf(run)) counts[run.requests!.process[i]!]!++;
  }
  const order = Array.from(counts.keys()).filter((process) => counts[process]! > 0);
  order.sort((a, b) => counts[b]! - counts[a]!);
  const last = CATEGORIES - 1;
  const category = new Uint8Array(processes.length).fill(last);
  order.slice(0, last).forEach((process, index) => (category[process] = index));
  const legend = order
    .slice(0, last)
    .map((process, index) => ({ text: processes[process]!, category: index }));
  if (order.length > last) legend.push({ text: `${order.length - last} others`, category: last });
  return { of: (requests, i) => category[requests.process[i]!]!, legend };
}
