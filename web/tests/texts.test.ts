import { describe, expect, test } from 'vitest';
import { languageFor, plural, text } from '../src/texts';
import { de } from '../src/texts/de';
import { en } from '../src/texts/en';

const placeholders = (value: string): string[] => [...new Set(value.match(/\{[a-zA-Z]+\}/g) ?? [])].sort();

describe('texts', () => {
  test('each language has all of them, with the same placeholders', () => {
    expect(Object.keys(de).sort()).toEqual(Object.keys(en).sort());
    for (const [key, value] of Object.entries(en)) {
      const other = de[key as keyof typeof en];
      expect(other.trim(), key).not.toBe('');
      expect(placeholders(other), key).toEqual(placeholders(value));
    }
  });

  test('forms by number come in pairs', () => {
    for (const key of Object.keys(en)) {
      if (key.endsWith('.one')) expect(en).toHaveProperty([key.replace(/one$/, 'other')]);
    }
  });

  test('values are put in once, and written out', () => {
    expect(text('en', 'remove.stopped', { name: '{detail}', detail: 'a\u202eb' })).toBe('Stopped at {detail}: a\\u{202e}b');
    expect(text('en', 'job.number')).toBe('Job {id}');
    expect(plural('de', 'remove.done', 1, { number: 1 })).toBe('1 Eintrag gelöscht.');
    expect(plural('en', 'remove.done', 3, { number: 3 })).toBe('Removed 3 entries.');
  });

  test('the language is one of the preferred ones', () => {
    expect(languageFor(['de-AT', 'en'])).toBe('de');
    expect(languageFor(['fr', 'de'])).toBe('de');
    expect(languageFor(['fr'])).toBe('en');
    expect(languageFor([])).toBe('en');
  });
});
