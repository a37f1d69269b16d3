/** What is known of each block at a moment: the states of the image map, replayed over time. */
import { DEMAND, WARM, WRITE, isAhead, type Run, type RequestTable } from "./data";
import { answered } from "./stats";

/** States, in the order of precedence: a cell that has several blocks shows the highest. */
export const STATES = [
  "cold",
  "zero",
  "hot",
  "written",
  "unused",
  "prefetched",
  "cached",
  "used",
  "read",
  "late",
] as const;
export type State = (typeof STATES)[number];
export const STATE_TEXT: Record<State, string> = {
  cold: "cold, not read",
  zero: "zero",
  hot: "hot, not read",
  written: "written",
  unused: "prefetched, never read",
  prefetched: "prefetched, not read yet",
  cached: "prefetched, taken by the page cache (read or not)",
  used: "prefetched, then read",
  read: "read on demand",
  late: "read before the prefetch brought it",
};
const [ZERO, HOT, WRITTEN, UNUSED, PREFETCHED, CACHED, USED, READ, LATE] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/** More cells than this are not drawn: then several blocks share a cell. */
const MOST_CELLS = 1 << 24;
/** Requests of damaged or hostile inputs may name the whole disk each: no more cells than this are visited. */
const MOST_VISITS = 1 << 28;

export interface Lead {
  /** When a demand read came. */
  at: Float64Array;
  /** How long before it the prefetch had brought its blocks; negative when late. */
  lead: Float64Array;
}

export class Blocks {
  readonly cells: number;
  readonly blocksPerCell: number;
  /** The state of each cell. */
  readonly states: Uint8Array;
  /** How many cells have each state. */
  readonly counts = new Uint32Array(STATES.length);
  readonly lead: Lead;
  /** The replay has come to this time, and to this place in the chosen requests. */
  time = -Infinity;
  position = 0;
  private readonly requests: RequestTable | null;
  private readonly mostOfOne: number;
  /**
   * Of each cell: bit 0, a demand read comes at some time; bit 1, one came before the prefetch; bit 2, a read that
   * warms a page cache comes; bit 3, the prefetch comes.
   */
  private readonly facts: Uint8Array;

  constructor(
    private readonly run: Run,
    readonly chosen: Uint32Array,
  ) {
    const blocks = run.disk?.blocks ?? 0;
    this.blocksPerCell = 2 ** Math.max(0, Math.ceil(Math.log2(blocks / MOST_CELLS)));
    this.cells = Math.ceil(blocks / this.blocksPerCell);
    this.states = new Uint8Array(this.cells);
    this.facts = new Uint8Array(this.cells);
    this.requests = run.requests;
    this.mostOfOne = Math.max(1, Math.floor(MOST_VISITS / Math.max(1, chosen.length)));
    this.lead = this.learn();
    this.reset();
  }

  /** The cells of a request: the first, and the one behind the last. */
  cellsOf(i: number): [number, number] {
    const { block, blocks } = this.requests!;
    const first = Math.floor(block[i]! / this.blocksPerCell);
    const end = Math.min(Math.ceil((block[i]! + blocks[i]!) / this.blocksPerCell), this.cells);
    return [first, Math.min(end, first + this.mostOfOne)];
  }

  private learn(): Lead {
    const { requests, facts, chosen } = this;
    if (!requests) return { at: new Float64Array(), lead: new Float64Array() };
    let arrival: Float32Array | null = null;
    for (const i of chosen) {
      if (!isAhead(requests.kind[i]!)) continue;
      arrival ??= new Float32Array(this.cells).fill(Infinity);
      const [first, end] = this.cellsOf(i);
      const when = answered(requests, i);
      for (let cell = first; cell < end; cell++) {
        arrival[cell] = Math.min(arrival[cell]!, when);
        facts[cell]! |= 8;
      }
    }
    const at: number[] = [];
    const lead: number[] = [];
    for (const i of chosen) {
      const [first, end] = this.cellsOf(i);
      if (requests.kind[i] === WARM) {
        for (let cell = first; cell < end; cell++) facts[cell]! |= 4;
      }
      if (requests.kind[i] !== DEMAND) continue;
      if (!arrival) {
        for (let cell = first; cell < end; cell++) facts[cell]! |= 1;
        continue;
      }
      let last = -Infinity;
      for (let cell = first; cell < end; cell++) {
        const brought = arrival[cell]!;
        if (brought !== Infinity) {
          last = Math.max(last, brought);
          if (brought > requests.at[i]! && !(facts[cell]! & 1)) facts[cell]! |= 2;
        }
        facts[cell]! |= 1;
      }
      if (last !== -Infinity) {
        at.push(requests.at[i]!);
        lead.push(requests.at[i]! - last);
      }
    }
    return { at: Float64Array.from(at), lead: Float64Array.from(lead) };
  }

  private reset(): void {
    const { states } = this;
    states.fill(0);
    const disk = this.run.disk;
    for (const [runs, state] of [
      [disk?.zero, ZERO],
      [disk?.hot?.runs, HOT],
    ] as const) {
      for (let run = 0; run < (runs?.first.length ?? 0); run++) {
        const first = runs!.first[run]!;
        const end = Math.ceil((first + runs!.count[run]!) / this.blocksPerCell);
        states.fill(state, Math.floor(first / this.blocksPerCell), end);
      }
    }
    this.countAll();
    this.position = 0;
    this.time = -Infinity;
  }

  /** Counts the cells of each state. An index loop, since an iterator takes ten times as long for 16 M cells. */
  private countAll(): void {
    const { states, counts } = this;
    counts.fill(0);
    for (let cell = 0; cell < states.length; cell++) counts[states[cell]!]!++;
  }

  /**
   * Moves the replay to a time, forwards or backwards, and names the cells whose states change. Returns true when
   * it began anew, so that everything may have changed.
   */
  goTo(time: number, changed: (cell: number, state: number) => void): boolean {
    const anew = time < this.time;
    if (anew) this.reset();
    this.time = time;
    const { requests, states, counts, chosen } = this;
    if (!requests) return anew;
    for (; this.position < chosen.length; this.position++) {
      const i = chosen[this.position]!;
      if (requests.at[i]! > time) break;
      const kind = requests.kind[i]!;
      const [first, end] = this.cellsOf(i);
      for (let cell = first; cell < end; cell++) {
        const old = states[cell]!;
        const state = this.next(cell, old, kind);
        if (state <= old) continue;
        states[cell] = state;
        counts[old]!--;
        counts[state]!++;
        if (!anew) changed(cell, state);
      }
    }
    return anew;
  }

  /** Takes the states of all cells from elsewhere, where nothing is replayed. */
  replace(states: Uint8Array): void {
    this.states.set(states.subarray(0, this.cells));
    this.countAll();
  }

  /** Gives cells another state, and names those that had a lower one. */
  raise(first: number, count: number, state: number, changed: (cell: number, state: number) => void): void {
    for (let cell = first; cell < Math.min(first + count, this.cells); cell++) {
      const old = this.states[cell]!;
      if (state <= old) continue;
      this.states[cell] = state;
      this.counts[old]!--;
      this.counts[state]!++;
      changed(cell, state);
    }
  }

  /** How many cells have each state at the end; the replay stays where it is. */
  finalCounts(): Record<State, number> {
    const end = new Blocks(this.run, this.chosen);
    end.goTo(Infinity, () => undefined);
    return Object.fromEntries(STATES.map((state, i) => [state, end.counts[i]!])) as Record<State, number>;
  }

  private next(cell: number, old: number, kind: number): number {
    const facts = this.facts[cell]!;
    if (kind === WRITE) return WRITTEN;
    // The page cache asks a moment ahead, and takes what comes. What it has, programs read without a request.
    if (isAhead(kind)) return facts & 4 ? CACHED : facts & 1 ? PREFETCHED : UNUSED;
    if (kind === WARM && facts & 8) return old;
    if (facts & 2) return LATE;
    return old === PREFETCHED || old === CACHED || old === USED ? USED : READ;
  }

  /** The chosen requests that touch a block, in order of arrival, at most so many. */
  touching(block: number, most: number): number[] {
    const found: number[] = [];
    if (!this.requests) return found;
    const { block: first, blocks } = this.requests;
    for (const i of this.chosen) {
      if (first[i]! <= block && block < first[i]! + blocks[i]!) {
        found.push(i);
        if (found.length === most) break;
      }
    }
    return found;
  }
}
