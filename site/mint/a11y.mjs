// Images without alternative text, links without words, colours without contrast: what `mint a11y` finds.
//   node a11y.mjs WEBSITE
import { getBackgroundColors } from '@mintlify/common';
import { getConfigObj } from '@mintlify/prebuild';
import { relative, report, website } from './pages.mjs';

// Its package exports the command only, which wraps its findings as wide as the terminal.
const command = (name) => import(new URL(`node_modules/@mintlify/cli/bin/${name}.js`, import.meta.url));
const { checkDocsColors } = await command('accessibility');
const { checkMdxAccessibility } = await command('mdxAccessibility');

const { missingAltAttributes, totalFiles } = await checkMdxAccessibility(website);
const problems = missingAltAttributes.map(({ filePath, line, element, tagName }) => ({
  page: relative(filePath),
  line: line ?? null,
  message: element === 'a' ? `a link without words: ${tagName}` : `no alternative text: ${tagName}`,
}));
const config = await getConfigObj(website, 'docs');
const { lightHex, darkHex } = getBackgroundColors(config);
const { anchorResults, overallScore, ...colours } = checkDocsColors(config.colors, { lightHex, darkHex }, config.navigation);
for (const [name, found] of Object.entries(colours)) {
  if (found?.recommendation === 'fail') {
    problems.push({ page: 'docs.json', line: null, message: `colors, ${name.replace('Contrast', '')}: ${found.message}` });
  }
}
report({ pages: totalFiles, problems });
