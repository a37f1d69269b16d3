/** The live page: asks its server once a second how it is, and shows that. */
import { STATES, STATE_TEXT, type State } from "../blocks";
import { decodeColumn } from "../column";
import { Context } from "../context";
import { groupsOf, type Data, type Disk } from "../data";
import { choice, h } from "../dom";
import { saveCanvas, saveCsv } from "../export";
import { columnsFor } from "../layout";
import { sample } from "../painter";
import { makeView, shell } from "../section";
import * as text from "../text";
import { themeChoice } from "../theme";
import { linkZoom, stateTable, whole } from "../views/map";
import { MapPane } from "../views/pane";
import type { Feed } from "./feed";
import { Rates } from "./rates";
import { ratesView } from "./view";

export const VERSION = 1;
const EVERY_MS = 1000;
/** A server that does not answer in this time is told to be gone. */
const PATIENCE_MS = 10_000;

/** The states that a feed has: nothing is written, and what is never read is known only at the end. */
const OF_DISK: readonly State[] = ["cold", "hot", "prefetched", "cached", "used", "read", "late"];
/** Of a file, what was sent is known. */
const OF_FILE: readonly State[] = ["cold", "hot", "read"];
const TEXT_OF_FILE: Partial<Record<State, string>> = {
  cold: "not sent",
  hot: "hot region, not sent",
  read: "sent to clients",
};

export function startLive(root: HTMLElement): void {
  new LivePage(root).start();
}

class LivePage {
  private context = new Context(dataOf(null));
  /** The rates need no data but a theme. */
  private readonly rateContext = new Context(dataOf(null));
  private pane: MapPane | null = null;
  private feed: Feed | null = null;
  private wanted = 0;
  private readonly rates = new Rates();
  private readonly state = h("p", { class: "live-state", role: "status" }, "Asking the server…");
  private readonly facts = h("dl", { class: "facts" });
  private readonly progress = h("div", { class: "prefetch" });
  private readonly pickers = h("span", { class: "pickers" });
  private readonly legend = h("ul", { class: "legend", "aria-label": "States of blocks" });
  private readonly paneBox = h("div", { class: "panes" });
  private readonly map = shell(
    "map",
    "Image map",
    "Every block, in rows of ascending addresses, as it is now. Wheel with Ctrl, + and − zoom; drag and arrow keys move.",
  );
  private readonly view = makeView(
    ratesView(() => this.rates),
    this.rateContext,
  );
  private readonly theme = themeChoice((theme) => {
    this.context.theme = theme;
    this.rateContext.theme = theme;
    this.build();
    this.view.draw();
  });

  constructor(private readonly root: HTMLElement) {}

  start(): void {
    const button = (label: string, save: (panes: MapPane[]) => void): HTMLElement =>
      h("button", { type: "button", click: () => this.pane && save([this.pane]) }, label);
    this.map.tools.append(
      this.pickers,
      button("PNG", (panes) => saveCanvas("headstart-map", whole(panes, this.context))),
      button("CSV", (panes) => saveCsv("headstart-map", stateTable(panes, this.context))),
    );
    this.map.element.append(this.paneBox, this.legend);
    this.root.replaceChildren(
      h("header", {}, h("h1", {}, "headstart live"), h("span", { class: "generator" }), this.theme.element),
      h("main", {}, this.state, this.facts, this.progress, this.map.element, this.view.element),
    );
    let width = this.root.clientWidth;
    new ResizeObserver(() => {
      if (Math.abs(this.root.clientWidth - width) < 2) return;
      width = this.root.clientWidth;
      requestAnimationFrame(() => this.theme.apply());
    }).observe(this.root);
    this.theme.apply();
    void this.ask();
  }

  private async ask(): Promise<void> {
    const began = performance.now();
    try {
      if (!document.hidden || this.feed === null) await this.take(await this.fetch());
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.say(`The server does not answer: it has ended, or another one begins. (${reason})`, true);
    }
    setTimeout(() => void this.ask(), Math.max(100, EVERY_MS - (performance.now() - began)));
  }

  private async fetch(): Promise<Feed> {
    const { feed } = this;
    const query = new URLSearchParams({ image: String(this.wanted) });
    if (feed) {
      query.set("server", feed.server);
      if (feed.image === this.wanted) query.set("from", String(feed.map.next));
    }
    // Headstart's own page: no cookie and no other site has a part in it.
    const answer = await fetch(`feed?${query.toString()}`, {
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (!answer.ok) throw new Error(`it says ${answer.status}`);
    const said = (await answer.json()) as Feed | null;
    if (said === null) throw new Error("it serves no image");
    if (said.version !== VERSION)
      throw new Error(`this page reads version ${VERSION} of its data, and it has version ${said.version}`);
    return said;
  }

  private async take(feed: Feed): Promise<void> {
    const before = this.feed;
    const { map } = feed;
    const cells = Math.ceil(map.blocks / map.blocks_per_cell);
    const states =
      map.states === null ? null : await decodeColumn({ type: "u8", count: cells, data: map.states }, "u8");
    this.feed = feed;
    this.rates.add(feed);
    const isSame = before?.image === feed.image && before.map.blocks === map.blocks;
    if (!isSame || this.pane === null) {
      this.context = Object.assign(new Context(dataOf(feed)), { theme: this.context.theme });
      this.build();
    }
    const changes = map.first.map((first, i) => [first, map.count[i]!, map.state[i]!] as const);
    this.pane?.apply(states, changes);
    this.show(feed);
    this.view.draw();
    this.root.dataset.live = String(Number(this.root.dataset.live ?? 0) + 1);
  }

  /** Makes the map anew: of another image, in another size or theme. */
  private build(): void {
    const { feed, context } = this;
    if (feed === null) return;
    const run = context.data.runs[0]!;
    const { cells } = context.blocksOf(run);
    if (cells === 0) {
      this.paneBox.replaceChildren(h("p", { class: "empty" }, "The image has no blocks."));
      return;
    }
    const width = Math.floor(this.map.element.clientWidth);
    const most = width < 700 ? 300 : 420;
    const columns = columnsFor(cells, width, most);
    const height = Math.round(Math.max(120, Math.min(most, (Math.ceil(cells / columns) * width) / columns)));
    this.pane = new MapPane(context, run, columns, width, height);
    this.paneBox.replaceChildren(this.pane.element);
    linkZoom([this.pane], width, height);
    this.legend.replaceChildren(
      ...(feed.is_file ? OF_FILE : OF_DISK).map((state) => {
        const index = STATES.indexOf(state);
        return h(
          "li",
          {},
          sample(index, context.theme),
          h("span", {}, (feed.is_file && TEXT_OF_FILE[state]) || STATE_TEXT[state]),
          h("span", { class: "amount", "data-state": state }, text.count(this.pane!.count(index))),
        );
      }),
    );
  }

  private show(feed: Feed): void {
    this.root.querySelector(".generator")!.textContent = feed.generator;
    this.say(`Live, ${text.seconds(feed.at_s)} since the server began.`, false);
    for (const amount of this.legend.querySelectorAll<HTMLElement>("[data-state]")) {
      const index = STATES.indexOf(amount.dataset.state as State);
      amount.textContent = text.count(this.pane?.count(index) ?? 0);
    }
    const { waits, clients, prefetch } = feed;
    const facts: [string, string][] = [
      [feed.is_file ? "Served at" : "Shown at", feed.at],
      ["Medium", feed.medium],
      [feed.is_file ? "Requests of clients" : "Reads", text.count(waits.reads)],
    ];
    if (!feed.is_file) {
      facts.push(["Reads that waited", `${text.count(waits.waited)}, ${text.seconds(waits.wait_s)} in all`]);
      const longest = waits.now > 0 ? `, the longest for ${text.seconds(waits.longest_s)}` : "";
      facts.push(["Waiting now", `${text.count(waits.now)}${longest}`]);
    }
    if (clients) {
      facts.push(["Clients being answered", text.count(clients.now)]);
      facts.push(["Connections so far", text.count(clients.connections)]);
    }
    this.facts.replaceChildren(
      ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
    this.progress.replaceChildren();
    if (prefetch) {
      const { bytes, bytes_total: total, ended, mode } = prefetch;
      const words = `Prefetch (${mode}): ${text.bytes(bytes)} of ${text.bytes(total)}${ended === null ? "" : `, ${ended}`}`;
      const meter = h("progress", { value: bytes, max: Math.max(1, total), "aria-label": "Prefetch" });
      this.progress.append(meter, h("span", {}, words));
    }
    const names = feed.images.map((name, i) => [String(i), text.shorten(name, 60)] as const);
    const known = this.pickers.dataset.names;
    const wanted = JSON.stringify(names);
    if (known === wanted) return;
    this.pickers.dataset.names = wanted;
    this.pickers.hidden = names.length < 2;
    this.pickers.replaceChildren(
      choice("Image", names, String(this.wanted), (value) => (this.wanted = Number(value))),
    );
  }

  private say(words: string, isTrouble: boolean): void {
    this.state.textContent = words;
    this.state.classList.toggle("error", isTrouble);
  }
}

/** The page's data of an image that is being served: its map alone. */
function dataOf(feed: Feed | null): Data {
  const name = feed ? `${feed.images[feed.image] ?? ""}${feed.is_file ? ", the image's file" : ""}` : "";
  const disk: Disk = {
    name,
    blocks: feed?.map.blocks ?? 0,
    windowBlocks: null,
    hot: null,
    zero: null,
    files: null,
  };
  const run = {
    name,
    kind: "image" as const,
    command: null,
    medium: feed?.medium ?? null,
    disk,
    ready: null,
    ended: null,
    span: 0,
    requests: null,
    stages: [],
    stageFiles: [],
    lives: [],
    cpu: [],
    summary: null,
    notes: [],
  };
  const runs = [run];
  const groups = groupsOf([], runs);
  return { generator: feed?.generator ?? "", runs, stories: [], groups, processes: [], experiments: [] };
}
