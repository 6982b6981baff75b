// Texts of the page in each language, with placeholders for values.

import { display } from '../model/display';
import { de } from './de';
import { en } from './en';

export type Key = keyof typeof en;
export type Texts = Readonly<Record<Key, string>>;

type Plural<K> = K extends `${infer Stem}.other` ? Stem : never;
/** Keys with a singular and a plural form. */
export type PluralKey = Plural<Key>;

export const LANGUAGES = { en: 'English', de: 'Deutsch' } as const;
export type Language = keyof typeof LANGUAGES;

const TEXTS: Record<Language, Texts> = { en, de };

export type Values = Record<string, string | number>;

export function isLanguage(value: unknown): value is Language {
  return typeof value === 'string' && Object.hasOwn(TEXTS, value);
}

/** Returns the first preferred language that has texts. */
export function languageFor(preferred: readonly string[]): Language {
  for (const tag of preferred) {
    const language = tag.toLowerCase().split('-')[0];
    if (isLanguage(language)) return language;
  }
  return 'en';
}

/**
 * Returns a text with its values inserted. Invisible characters in untrusted values are escaped.
 */
export function text(language: Language, key: Key, values: Values = {}): string {
  // A single pass, so that placeholders in a value are not replaced.
  return TEXTS[language][key].replace(/\{([a-zA-Z]+)\}/g, (whole, name: string) => {
    const value = values[name];
    return value === undefined ? whole : display(String(value));
  });
}

const rules = new Map<Language, Intl.PluralRules>();

/** Returns the form of a text for `count`. */
export function plural(language: Language, key: PluralKey, count: number, values: Values = {}): string {
  const rule = rules.get(language) ?? new Intl.PluralRules(language);
  rules.set(language, rule);
  const form: Key = rule.select(count) === 'one' ? `${key}.one` : `${key}.other`;
  return text(language, form, values);
}
