// Highlights code and puts it into a frame with its title, outputs into a different one. Copy buttons are the reader's
// script's. Both languages of the book show the same code, so each block is highlighted once per build.
import { createCssVariablesTheme, createHighlighter, createJavaScriptRegexEngine } from 'shiki';
import { visit } from 'unist-util-visit';
import { escape } from '../html.mjs';
import { fragment } from './fragment.mjs';

const LANGUAGES = ['python', 'bash', 'json', 'yaml', 'toml', 'diff', 'markdown', 'jinja', 'javascript'];
const VARIABLE = /color:var\(--t-(?:token-)?([a-z-]+)\)/;
const theme = createCssVariablesTheme({ variablePrefix: '--t-' });
const highlighted = new Map();
let highlighter;

/** A Shiki transformer: a class for each kind of token instead of a colour, so that the style sheet has the colours. */
const tokenClasses = {
  pre(node) {
    node.properties = { 'data-language': this.options.lang };
  },
  span(node) {
    const kind = VARIABLE.exec(node.properties.style ?? '')?.[1];
    node.properties = kind && kind !== 'foreground' ? { class: `t-${kind}` } : {};
  },
  code(node) {
    const tokens = node.children.flatMap((line) => (line.type === 'element' ? line.children : [line]));
    node.children = tokens.flatMap((token) =>
      token.type === 'element' && !token.properties.class ? token.children : [token],
    );
  },
};

/** `output` for a titled block of plain text, which is how the book writes what a cell printed; else `code`. */
export function kindOf(language, title) {
  return language === 'text' && title ? 'output' : 'code';
}

/** HTML of a block in its frame. */
function frame(code, language, title) {
  const pre = highlighter.codeToHtml(code, { lang: language, theme, transformers: [tokenClasses] });
  const caption = title ? `<figcaption>${escape(title)}</figcaption>` : '';
  return `<figure class="${kindOf(language, title)}">${caption}${pre}</figure>`;
}

/** Remark plugin: replaces code blocks by highlighted ones; fails on a language that is not listed above. */
export function frameCode() {
  return async (tree, file) => {
    highlighter ??= await createHighlighter({
      langs: LANGUAGES,
      themes: [theme],
      engine: createJavaScriptRegexEngine(),
    });
    visit(tree, 'code', (node, index, parent) => {
      const [language, title] = [node.lang ?? 'text', node.meta ?? ''];
      if (language !== 'text' && !LANGUAGES.includes(language))
        file.fail(`code in a language nobody set up: ${language}`, node);
      const key = `${language}\n${title}\n${node.value}`;
      if (!highlighted.has(key)) highlighted.set(key, frame(node.value, language, title));
      parent.children[index] = fragment('mdxJsxFlowElement', highlighted.get(key));
    });
  };
}
