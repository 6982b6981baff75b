// Texts of the page in each language, and how values get into them.

import { display } from '../model/display';
import { de } from './de';
import { en } from './en';

export type Key = keyof typeof en;
export type Texts = Readonly<Record<Key, string>>;

type Plural<K> = K extends `${infer Stem}.other` ? Stem : never;
/** Keys that have a form for one and one for other numbers. */
export type PluralKey = Plural<Key>;

export const LANGUAGES = { en: 'English', de: 'Deutsch' } as const;
export type Language = keyof typeof LANGUAGES;

const TEXTS: Record<Language, Texts> = { en, de };

export type Values = Record<string, string | number>;

export function isLanguage(value: unknown): value is Language {
  return typeof value === 'string' && Object.hasOwn(TEXTS, value);
}

/** The first of these languages that there are texts for. */
export function languageFor(preferred: readonly string[]): Language {
  for (const tag of preferred) {
    const language = tag.toLowerCase().split('-')[0];
    if (isLanguage(language)) return language;
  }
  return 'en';
}

/** A text with its values. They may come from far ends, so what does not show in them is written out. */
export function text(language: Language, key: Key, values: Values = {}): string {
  // One pass over the text: what stands in a value is not taken for a placeholder.
  return TEXTS[language][key].replace(/\{([a-zA-Z]+)\}/g, (whole, name: string) => {
    const value = values[name];
    return value === undefined ? whole : display(String(value));
  });
}

const rules = new Map<Language, Intl.PluralRules>();

/** A text by number. */
export function plural(language: Language, key: PluralKey, count: number, values: Values = {}): string {
  const rule = rules.get(language) ?? new Intl.PluralRules(language);
  rules.set(language, rule);
  const form: Key = rule.select(count) === 'one' ? `${key}.one` : `${key}.other`;
  return text(language, form, values);
}
