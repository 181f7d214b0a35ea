// What the plugins make of a page, and what they refuse. Runs the compiler that Astro uses, without Astro.
import { compile } from '@mdx-js/mdx';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import remarkGfm from 'remark-gfm';
import remarkMath from 'remark-math';
import { VFile } from 'vfile';
import { anchorHeadings } from '../lib/mdx/anchors.mjs';
import { frameCode, kindOf } from '../lib/mdx/code.mjs';
import { isEnglish, markEnglish } from '../lib/mdx/english.mjs';
import { keepTogether } from '../lib/mdx/together.mjs';
import { setMath } from '../lib/mdx/math.mjs';
import { plainElements } from '../lib/mdx/plain.mjs';
import { scrollTables } from '../lib/mdx/tables.mjs';
import { onlyBookVocabulary } from '../lib/mdx/vocabulary.mjs';

process.env.BOOK_WEBSITE = '/book';

/** Compiles a page; returns its JavaScript and its outline. */
async function page(text, name = 'en/page.mdx') {
  const file = new VFile({ value: text, path: `/book/${name}`, data: { astro: { frontmatter: { title: 'A page' } } } });
  const compiled = await compile(file, {
    jsx: true,
    elementAttributeNameCase: 'html',
    remarkPlugins: [remarkGfm, remarkMath, onlyBookVocabulary, setMath, frameCode],
    rehypePlugins: [plainElements, anchorHeadings, scrollTables, markEnglish, keepTogether],
  });
  return { code: String(compiled), outline: file.data.astro.frontmatter.outline };
}

const REFUSED = {
  'an unknown component': ['<Banana>x</Banana>', /<Banana>/],
  'an unknown component in a line': ['a <Banana /> b', /<Banana>/],
  'an unknown element': ['<iframe src="x" />', /<iframe>/],
  'a stray expression': ['a {b.c} d', /braces/],
  'an expression that is harmless JavaScript': ['the set {1, 2}', /braces/],
  'an expression on a line of its own': ['{1}', /braces/],
  'an import': ["import x from 'y'\n\ntext", /braces or code/],
  'an attribute in braces': ['<Accordion title={1 + 1}>x</Accordion>', /braces/],
  'attributes from an expression': ['<Accordion {...x}>x</Accordion>', /braces/],
  'bad LaTeX in a line': ['a $\\frac{1}$ b', /bad LaTeX/],
  'bad LaTeX in a display': ['a\n\n$$\n\\nosuchmacro\n$$\n', /bad LaTeX/],
  'an image without alt text': ['<img src="/x.svg" />', /alt/],
  'a Markdown image without alt text': ['![](/x.svg)', /alt/],
  'a component that is not closed': ['<Note>\n\ntext', /closing tag/],
  'code in an unknown language': ['```pyhton\nx\n```', /pyhton/],
};

for (const [what, [text, reason]] of Object.entries(REFUSED)) {
  test(`${what} is refused`, async () => {
    await assert.rejects(page(text), reason);
  });
}

test('a fault is reported with its line', async () => {
  await assert.rejects(page('one\n\ntwo $\\nosuch$'), ({ line }) => line === 3);
});

test('braces, angle brackets and dollars are fine in code', async () => {
  const { code } = await page('`{a.b}` and `<x>`\n\n```python\nx = {1: "<b>"}  # $5\n```');
  assert.match(code, /\{a\.b\}/);
});

test('a heading takes over the id of the block around it, and is in the outline', async () => {
  const { code, outline } = await page('<div id="sec-1-1">\n\n## 1.1 From `x` to *y*\n\n</div>\n\ntext');
  assert.deepEqual(outline, [{ depth: 2, id: 'sec-1-1', text: '1.1 From x to y' }]);
  assert.match(code, /h2 id="sec-1-1"/);
  assert.doesNotMatch(code, /<_components\.div/);
});

test('headings in folded parts are not in the outline', async () => {
  const { outline } = await page('<Accordion title="Solution">\n\n<div id="a">\n\n### A\n\n</div>\n\n</Accordion>');
  assert.deepEqual(outline, []);
});

test('the id of a block without a heading stays where it is', async () => {
  const { code } = await page('<div id="eq-1-1">\n\n$$\nx \\tag{1.1}\n$$\n\n</div>');
  assert.match(code, /div id="eq-1-1"/);
});

test('code and output have different frames, and a title where there is one', async () => {
  assert.equal(kindOf('text', 'Output'), 'output');
  assert.equal(kindOf('text', '输出'), 'output');
  assert.equal(kindOf('text', ''), 'code');
  assert.equal(kindOf('python', 'agentrl.ppo'), 'code');
  const { code } = await page('```python agentrl.ppo\nx = 1\n```\n\n```text Output\n1 < 2\n```');
  assert.match(code, /figure class=&quot;code&quot;><figcaption>agentrl\.ppo</);
  assert.match(code, /figure class=&quot;output&quot;><figcaption>Output</);
});

test('a table stands in a box that scrolls', async () => {
  const { code } = await page('| a |\n| - |\n| b |\n');
  assert.match(code, /div class="table"/);
});

test('punctuation stays with the formula before it, and an opening bracket with the one after it', async () => {
  const { code } = await page("动作 $a_1$，由世界（$b$ 和 $c$）。 And $n$-step, $t$'s, plain $x$ end.");
  const spans = [...code.matchAll(/<_components\.span class="together">(.*?)<\/_components\.span>/g)];
  const texts = spans.map(([, inside]) => inside.replace(/<Fragment.*?\/>/g, 'F').replace(/\{"(.*?)"\}/g, '$1'));
  assert.deepEqual(texts, ['F，', '（F', 'F）。', 'F-step,', "F's,"]);
});

test('a formula in a line may break between its boxes, a displayed one may not', async () => {
  assert.match((await page('with $a = b + c$ here')).code, /&lt;wbr>|<wbr>/);
  assert.doesNotMatch((await page('$$\na = b + c\n$$')).code, /wbr/);
});

test('English blocks of a Chinese page are marked, Chinese ones and names are not', async () => {
  const { code } = await page('This is an English paragraph.\n\n这是中文，含 clip。\n\nPPO, GRPO', 'zh/page.mdx');
  assert.equal(code.match(/lang="en"/g).length, 1);
  assert.equal((await page('This is an English paragraph.')).code.includes('lang='), false);
});

test('code and formulas do not make a text English', () => {
  assert.equal(isEnglish('see the figure below'), true);
  assert.equal(isEnglish('见 the figure below'), false);
  assert.equal(isEnglish('SFT, DPO'), false);
});
