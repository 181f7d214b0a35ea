// What of a page gets into the search index.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { indexScript, sectionsOf, titleOf } from '../lib/search-index.mjs';

const page = (inside) =>
  `<nav>menu</nav><article class="prose" data-title="A &amp; B">${inside}</article><footer>end</footer>`;

test('a section begins at each heading with an id and holds the text up to the next', () => {
  const html = page(
    '<p>Before.</p><h2 id="one">1.1 One<a class="anchor" href="#one">#</a></h2><p>First <b>text</b>.</p><h3 id="two">Two</h3>x',
  );
  assert.deepEqual(sectionsOf(html, titleOf(html)), [
    { anchor: '', title: 'A & B', text: 'Before.' },
    { anchor: 'one', title: '1.1 One', text: 'First text.' },
    { anchor: 'two', title: 'Two', text: 'x' },
  ]);
});

test('an exercise is a section called by its first bold words', () => {
  const html = page('<div id="ex-1-2"><p><strong>Exercise 1.2 ★</strong> Find a <strong>test</strong>.</p></div>');
  assert.deepEqual(sectionsOf(html, '').at(-1), { anchor: 'ex-1-2', title: 'Exercise 1.2 ★', text: 'Find a test.' });
});

test('of a formula its symbols are indexed once, without LaTeX and without layout', () => {
  const formula =
    '<span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>π</mi><mtext>clip</mtext></mrow>' +
    '<annotation encoding="application/x-tex">\\pi \\text{clip}</annotation></semantics></math></span>' +
    '<span class="katex-html" aria-hidden="true"><span class="base">π clip<br></span></span></span>';
  assert.equal(sectionsOf(page(`<p>a ${formula} b</p>`), '')[0].text, 'a πclip b');
});

test('blocks are set apart, inline elements are not', () => {
  assert.equal(sectionsOf(page('<ul><li>one</li><li>t<b>w</b>o</li></ul>'), '')[0].text, 'one two');
});

test('characters are what they stand for', () => {
  assert.equal(sectionsOf(page('a &lt;call&gt; &#x3C;b&#62; &amp;lt;'), '')[0].text, 'a <call> <b> &lt;');
});

test('the script holds pages and sections in their order', () => {
  const window = {};
  new Function('window', indexScript([{ url: 'en/a.html', title: 'A', html: page('text </script>') }]))(window);
  assert.deepEqual(window.bookIndex, { pages: [['en/a.html', 'A']], sections: [[0, '', 'A', 'text']] });
});
