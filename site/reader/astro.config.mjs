// How Astro is set up. build.mjs starts it and says in the environment where to read and where to write.
import mdx from '@astrojs/mdx';
import { defineConfig, passthroughImageService } from 'astro/config';
import remarkMath from 'remark-math';
import { finishSite } from './lib/finish.mjs';
import { anchorHeadings } from './lib/mdx/anchors.mjs';
import { markBareLinks } from './lib/mdx/bare-links.mjs';
import { frameCode } from './lib/mdx/code.mjs';
import { markEnglish } from './lib/mdx/english.mjs';
import { sizeImages } from './lib/mdx/images.mjs';
import { setMath } from './lib/mdx/math.mjs';
import { markOpening } from './lib/mdx/opening.mjs';
import { plainElements } from './lib/mdx/plain.mjs';
import { scrollTables } from './lib/mdx/tables.mjs';
import { keepTogether } from './lib/mdx/together.mjs';
import { onlyBookVocabulary } from './lib/mdx/vocabulary.mjs';
import { pagesModule } from './lib/pages-module.mjs';

const { BOOK_WEBSITE, BOOK_CACHE, BOOK_OUT } = process.env;

export default defineConfig({
  outDir: BOOK_OUT,
  cacheDir: BOOK_CACHE,
  integrations: [mdx({ optimize: true }), finishSite(BOOK_WEBSITE)],
  markdown: {
    smartypants: false,
    syntaxHighlight: false, // frameCode does it
    remarkPlugins: [remarkMath, onlyBookVocabulary, setMath, frameCode],
    rehypePlugins: [
      plainElements,
      markOpening,
      anchorHeadings,
      scrollTables,
      sizeImages,
      markBareLinks,
      markEnglish,
      keepTogether,
    ],
  },
  image: { service: passthroughImageService() },
  build: { format: 'file' },
  devToolbar: { enabled: false },
  vite: {
    plugins: [pagesModule(BOOK_WEBSITE)],
    // The bundle lives only as long as the build: leaving unused code out of it costs more time than it saves.
    build: { rollupOptions: { treeshake: false } },
  },
});
