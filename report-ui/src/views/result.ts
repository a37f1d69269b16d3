/** The result: for each story a sentence and a chart. */
import type { Context } from "../context";
import { h, s } from "../dom";
import { save } from "../export";
import type { View } from "../section";
import { chart, chartFile, sentence } from "../story";

export function makeResult(context: Context): View {
  const { stories } = context.data;
  const figures = stories.map((story) => {
    const picture = s("svg", { class: "chart", role: "img", "aria-label": sentence(story) });
    const file = (): void => save("headstart-result.svg", "image/svg+xml", [chartFile(story)]);
    const button = h("button", { type: "button", click: file, title: "Save as SVG" }, "SVG");
    const about = h("div", { class: "tools" }, h("span", { class: "about" }, story.about), button);
    return { story, picture, element: h("figure", {}, h("h2", {}, sentence(story)), picture, about) };
  });
  const element = h(
    "section",
    { id: "result", "aria-label": "Result" },
    ...figures.map((each) => each.element),
  );
  const draw = (): void => {
    for (const { story, picture, element } of figures) {
      const { width, height, shapes } = chart(story, Math.max(240, Math.floor(element.clientWidth)));
      picture.setAttribute("width", String(width));
      picture.setAttribute("height", String(height));
      picture.replaceChildren(
        ...shapes.map(({ name, attributes, text }) => s(name, attributes, text ?? null)),
      );
    }
  };
  const has = (): boolean => stories.length > 0;
  return { element, id: "result", title: "Result", has, draw, setTime: () => undefined };
}
