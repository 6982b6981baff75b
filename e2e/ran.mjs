// What of the page's source has run, by V8's own count: a button whose handler nobody called, or a key that nobody pressed, is found even if it never
// came into view. What the program serves is minified; the source map of the same page, built once more, leads back to the source.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { TraceMap, allGeneratedPositionsFor } from "@jridgewell/trace-mapping";

const web = new URL("../web/", import.meta.url).pathname;
const ts = createRequire(path.join(web, "package.json"))("typescript");

/** Places of the source that have to run: handlers of components, and the keys of the lists. */
function wanted() {
  const found = [];
  const directory = path.join(web, "src/ui");
  for (const file of fs.readdirSync(directory).sort()) {
    const text = fs.readFileSync(path.join(directory, file), "utf8");
    const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true, file.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS);
    const want = (node, what) => {
      const from = source.getLineAndCharacterOfPosition(node.getStart(source));
      const to = source.getLineAndCharacterOfPosition(node.getEnd());
      found.push({ file: `src/ui/${file}`, from, to, what });
    };
    const visit = (node) => {
      if (ts.isJsxAttribute(node) && /^on[A-Z]/.test(node.name.getText(source)) && node.initializer && ts.isJsxExpression(node.initializer)) {
        const handler = node.initializer.expression;
        if (handler && ts.isArrowFunction(handler)) want(firstOf(handler.body), node.name.getText(source));
      }
      if (file === "list-keys.ts" && ts.isCaseClause(node)) {
        const first = node.statements.map(firstOf)[0];
        if (first && !ts.isBreakStatement(first)) want(first, node.getText(source).split("\n")[0]);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  return found;
}

/** The first statement of a block that does something, or what is no block. */
function firstOf(node) {
  return ts.isBlock(node) ? firstOf(node.statements[0]) : node;
}

export class Ran {
  #entries = [];

  async begin(page) {
    await page.coverage.startJSCoverage({ resetOnNavigation: false });
  }

  /** Before the page goes elsewhere: what was counted goes with its process. */
  async end(page) {
    this.#entries.push(...(await page.coverage.stopJSCoverage()));
  }

  /** What has not run. `built` is where the page was built with its map. */
  faults(built) {
    const assets = path.join(built, "assets");
    const name = fs.readdirSync(assets).find((file) => /^index-.*\.js$/.test(file));
    const text = fs.readFileSync(path.join(assets, name), "utf8");
    const map = new TraceMap(JSON.parse(fs.readFileSync(path.join(assets, `${name}.map`), "utf8")));
    const entries = this.#entries.filter((entry) => entry.source === text);
    if (entries.length === 0) return [`the program serves another page than that of web/src (${name}): make build`];
    const starts = [0];
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
    const ran = (offset) => entries.some((entry) => countAt(entry, offset) > 0);
    const faults = [];
    for (const { file, from, to, what } of wanted()) {
      const source = map.sources.find((one) => one?.endsWith(file));
      const at = offsets(map, source, from, to).map(({ line, column }) => starts[line - 1] + column);
      const shown = `web/${file}:${from.line + 1}: ${what}`;
      if (at.length === 0) faults.push(`${shown} is not in the source map`);
      else if (!at.some(ran)) faults.push(`${shown} was never used`);
    }
    return faults;
  }
}

/** Where the first token of this stretch that is in the map was written to. */
function offsets(map, source, from, to) {
  for (let line = from.line; line <= to.line; line += 1) {
    const begin = line === from.line ? from.character : 0;
    const end = line === to.line ? to.character : 200;
    for (let column = begin; column <= end; column += 1) {
      const found = allGeneratedPositionsFor(map, { source, line: line + 1, column });
      if (found.length > 0) return found;
    }
  }
  return [];
}

/** How often the innermost block around an offset was run. */
function countAt(entry, offset) {
  let size = Infinity;
  let count = 0;
  for (const each of entry.functions) {
    for (const range of each.ranges) {
      if (range.startOffset > offset || offset >= range.endOffset || range.endOffset - range.startOffset >= size) continue;
      size = range.endOffset - range.startOffset;
      count = range.count;
    }
  }
  return count;
}
