/** What all views share. */
import { Blocks } from "./blocks";
import { hasTimes, isWaitedFor, KINDS, type Data, type Group, type Run } from "./data";
import { select, type Filter } from "./filter";
import type { Theme } from "./palette";

export class Context {
  /** The inputs that are shown together. */
  group: Group;
  filter: Filter;
  /** The moment that playback shows. */
  time: number;
  theme: Theme = "light";
  /** Runs that are not shown: at first profiles of a disk of which there is a trace. */
  readonly hidden: Set<Run>;
  /** Calls views when the moment changes. */
  onTime: (() => void)[] = [];
  private chosen: (Uint32Array | null)[] = [];
  private whole: (Uint32Array | null)[] = [];
  private blocks: (Blocks | null)[] = [];

  constructor(readonly data: Data) {
    const traced = new Set(data.runs.filter((run) => run.kind === "trace").map((run) => run.disk));
    this.hidden = new Set(data.runs.filter((run) => run.kind === "profile" && traced.has(run.disk)));
    this.group = data.groups[0]!;
    this.filter = this.noFilter();
    this.time = this.span;
    this.forget();
  }

  /** How long the runs last that are shown, and have something to show over time. */
  get span(): number {
    return this.runs.filter(hasTimes).reduce((most, run) => Math.max(most, run.span), 0);
  }

  /** Shows a run or hides it; what went to the end goes to the new end. */
  show(run: Run, isShown: boolean): void {
    const before = this.span;
    if (isShown) this.hidden.delete(run);
    else this.hidden.add(run);
    const { span } = this;
    if (this.filter.to === before) this.filter.to = span;
    this.time = this.time === before ? span : Math.min(this.time, span);
    this.forget();
  }

  /** Shows other inputs, all of their requests. */
  choose(group: Group): void {
    this.group = group;
    this.filter = this.noFilter();
    this.time = this.span;
    this.forget();
  }

  noFilter(): Filter {
    return { kinds: KINDS.map(() => true), process: null, from: 0, to: this.span };
  }

  /** Call it when the filter has changed. */
  forget(): void {
    this.chosen = this.data.runs.map(() => null);
    this.whole = this.data.runs.map(() => null);
    this.blocks = this.data.runs.map(() => null);
  }

  setTime(time: number): void {
    this.time = Math.max(0, Math.min(this.span, time));
    for (const view of this.onTime) view();
  }

  /** The runs that are shown. */
  get runs(): Run[] {
    return this.group.runs.filter((run) => !this.hidden.has(run));
  }

  /** The runs that are shown and have requests. */
  get withRequests(): Run[] {
    return this.runs.filter((run) => run.requests !== null && run.requests.count > 0);
  }

  /** Whether a run of the group has requests. */
  get hasRequests(): boolean {
    return this.group.runs.some((run) => (run.requests?.count ?? 0) > 0);
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

  /** Of these, those that a program waits for. */
  waitedOf(run: Run): Uint32Array {
    const { kind } = run.requests!;
    return this.wholeOf(run).filter((i) => isWaitedFor(kind[i]!));
  }

  /** Its blocks, with a replay of these requests. */
  blocksOf(run: Run): Blocks {
    const index = this.data.runs.indexOf(run);
    return (this.blocks[index] ??= new Blocks(run, this.chosenOf(run)));
  }

  /** A name that tells a run from the others. */
  nameOf(run: Run): string {
    const namesakes = this.group.runs.filter(({ name }) => name === run.name);
    return namesakes.length > 1 ? `${run.name} (${namesakes.indexOf(run) + 1})` : run.name;
  }

  /** The end of the time axis. */
  get timeDomain(): [number, number] {
    const { from, to } = this.filter;
    return [from, to > from ? to : from + 1e-3];
  }
}
