/** What all views share. */
import { Blocks } from "./blocks";
import { KINDS, type Data, type Run } from "./data";
import { select, type Filter } from "./filter";
import type { Theme } from "./palette";

export class Context {
  filter: Filter;
  /** The moment that playback shows. */
  time: number;
  theme: Theme = "light";
  /** Of each run, whether it is shown. */
  shown: boolean[];
  /** Calls views when the moment changes. */
  onTime: (() => void)[] = [];
  private chosen: (Uint32Array | null)[] = [];
  private whole: (Uint32Array | null)[] = [];
  private blocks: (Blocks | null)[] = [];

  constructor(readonly data: Data) {
    this.filter = this.noFilter();
    this.time = data.span;
    this.shown = data.runs.map(() => true);
    this.forget();
  }

  noFilter(): Filter {
    return { kinds: KINDS.map(() => true), process: null, from: 0, to: this.data.span };
  }

  /** Call it when the filter has changed. */
  forget(): void {
    this.chosen = this.data.runs.map(() => null);
    this.whole = this.data.runs.map(() => null);
    this.blocks = this.data.runs.map(() => null);
  }

  setTime(time: number): void {
    this.time = Math.max(0, Math.min(this.data.span, time));
    for (const view of this.onTime) view();
  }

  /** The runs that are shown. */
  get runs(): Run[] {
    return this.data.runs.filter((_, index) => this.shown[index]);
  }

  /** The runs that are shown and have requests. */
  get withRequests(): Run[] {
    return this.runs.filter((run) => run.requests !== null && run.requests.count > 0);
  }

  /** The requests of a run that pass the filter. */
  chosenOf(run: Run): Uint32Array {
    const index = this.data.runs.indexOf(run);
    return (this.chosen[index] ??= run.requests ? select(run.requests, this.filter) : new Uint32Array());
  }

  /** Of these, each request once: without the further parts of those that brought several runs of blocks. */
  wholeOf(run: Run): Uint32Array {
    const index = this.data.runs.indexOf(run);
    return (this.whole[index] ??= this.chosenOf(run).filter((i) => !run.requests!.part[i]));
  }

  /** Its blocks, with a replay of these requests. */
  blocksOf(run: Run): Blocks {
    const index = this.data.runs.indexOf(run);
    return (this.blocks[index] ??= new Blocks(run, this.chosenOf(run)));
  }

  /** A name that tells a run from the others. */
  nameOf(run: Run): string {
    const index = this.data.runs.indexOf(run);
    return this.data.runs.length > 1 ? `${index + 1}. ${run.name}` : run.name;
  }

  /** The end of the time axis. */
  get timeDomain(): [number, number] {
    const { from, to } = this.filter;
    return [from, to > from ? to : from + 1e-3];
  }
}
