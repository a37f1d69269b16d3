/** Percentiles, fairness, totals. */
import { union } from "./bins";
import { BLOCK_BYTES, isWaitedFor, type RequestTable } from "./data";

/** The nearest-rank percentile of values in ascending order; `NaN` of none. */
export function percentile(sorted: ArrayLike<number>, percent: number): number {
  if (sorted.length === 0) return NaN;
  const rank = Math.ceil((percent / 100) * sorted.length);
  return sorted[Math.max(rank, 1) - 1]!;
}

/** Jain's fairness index, (Σx)² / (n Σx²): 1 when all are equal, 1/n when one has all (Jain et al., 1984). */
export function jain(values: readonly number[]): number {
  let sum = 0;
  let squares = 0;
  for (const value of values) {
    sum += value;
    squares += value * value;
  }
  return squares === 0 ? NaN : (sum * sum) / (values.length * squares);
}

/** Which part of a request's time counts. */
export type Part = "total" | "service" | "wait";

export function duration(requests: RequestTable, i: number, part: Part): number {
  if (part === "service") return requests.service[i]!;
  if (part === "wait") return requests.wait[i]!;
  return requests.service[i]! + requests.wait[i]!;
}

/** When a request was answered. */
export function answered(requests: RequestTable, i: number): number {
  return requests.at[i]! + requests.wait[i]! + requests.service[i]!;
}

/** How long a program waited for the chosen requests: each moment once. */
export function waitedSeconds(requests: RequestTable, chosen: Uint32Array): number {
  const waited = chosen.filter((i) => isWaitedFor(requests.kind[i]!));
  const starts = Float64Array.from(waited, (i) => requests.at[i]!);
  const ends = Float64Array.from(waited, (i) => answered(requests, i));
  return union(starts, ends).reduce((sum, [from, to]) => sum + to - from, 0);
}

export interface Share {
  requests: number;
  bytes: number;
  /** Sum of the times from arrival to answer. */
  seconds: number;
}

/** Totals of the chosen requests by a key, such as kind or process. */
export function shares(
  requests: RequestTable,
  chosen: Uint32Array,
  key: ArrayLike<number>,
): Map<number, Share> {
  const found = new Map<number, Share>();
  for (const i of chosen) {
    let share = found.get(key[i]!);
    if (!share) found.set(key[i]!, (share = { requests: 0, bytes: 0, seconds: 0 }));
    share.bytes += requests.blocks[i]! * BLOCK_BYTES;
    if (requests.part[i]) continue;
    share.requests += 1;
    share.seconds += duration(requests, i, "total");
  }
  return found;
}
