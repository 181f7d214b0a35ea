// The components that pages may use; lib/mdx/vocabulary.mjs refuses any other name.
import Accordion from './Accordion.astro';
import AccordionGroup from './AccordionGroup.astro';
import Check from './Check.astro';
import Frame from './Frame.astro';
import Info from './Info.astro';
import Note from './Note.astro';
import Tip from './Tip.astro';
import Warning from './Warning.astro';

export const components = { Accordion, AccordionGroup, Check, Frame, Info, Note, Tip, Warning };
