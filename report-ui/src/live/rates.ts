/** Rates over time, from counters that a server tells once a second. */
import type { Feed } from "./feed";

/** So many moments are kept: ten minutes. */
const MOST = 600;

export interface Moment {
  /** Seconds since the server began. */
  at: number;
  /** Since the moment before. */
  seconds: number;
  /** Of each class. */
  bytes: number[];
  requests: number[];
  /** Sum of the times that reads have waited meanwhile, as seconds a second. */
  waiting: number;
}

export class Rates {
  classes: string[] = [];
  moments: Moment[] = [];
  /** Whether reads wait for the medium, as far as the server knows. */
  knowsWaits = true;
  private before: Feed | null = null;

  /** Takes what a server says. Another server, or another image, begins anew. */
  add(feed: Feed): void {
    const { before } = this;
    this.before = feed;
    if (before?.server !== feed.server || before.image !== feed.image) {
      this.moments = [];
      this.knowsWaits = !feed.is_file;
      this.classes = feed.classes.map((each) => each.name);
      return;
    }
    const seconds = feed.at_s - before.at_s;
    if (!(seconds > 0)) return;
    const rate = (now: number, then: number | undefined): number => Math.max(0, now - (then ?? 0)) / seconds;
    this.moments.push({
      at: feed.at_s,
      seconds,
      bytes: feed.classes.map((each, i) => rate(each.bytes, before.classes[i]?.bytes)),
      requests: feed.classes.map((each, i) => rate(each.requests, before.classes[i]?.requests)),
      waiting: rate(feed.waits.wait_s, before.waits.wait_s),
    });
    if (this.moments.length > MOST) this.moments.shift();
  }
}
