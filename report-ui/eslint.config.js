import js from "@eslint/js";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

const unsafeHtml = ["innerHTML", "outerHTML", "insertAdjacentHTML", "write"].map((name) => ({
  selector: `MemberExpression[property.name="${name}"]:not([object.object.name="process"])`,
  message: "Names come from files: set textContent.",
}));

export default defineConfig(
  { ignores: ["dist", "out", "src/model.ts", "src/live/feed.ts"] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: { allowDefaultProject: ["eslint.config.js"] } } },
    rules: {
      "no-restricted-syntax": ["error", ...unsafeHtml],
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
    },
  },
);
