// Links of a website folder that lead nowhere, to a page, an anchor or an image: what `mint broken-links
// --check-anchors` finds.
//   node links.mjs WEBSITE
import { buildGraph } from '@mintlify/link-rot';
import { pages, relative, report, website } from './pages.mjs';

const UNREADABLE = /Unable to parse (?<page>\S+) - (?<message>.*)/s;
const problems = [];
try {
  const graph = await buildGraph(website);
  for (const { relativeDir, filename, originalPath } of graph.getBrokenInternalLinks({ checkAnchors: true })) {
    problems.push({ page: relative(`${relativeDir}/${filename}`), line: null, link: originalPath });
  }
} catch (error) {
  const { page, message } = UNREADABLE.exec(error.message)?.groups ?? { page: 'docs.json', message: error.message };
  problems.push({ page: relative(page), line: null, message });
}
report({ pages: pages().length, problems });
