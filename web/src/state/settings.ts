// Settings of the user, kept in this browser.

import { computed, effect, signal } from '@preact/signals';
import { decimal, formatCount, formatDuration, formatMoment, formatRate, formatSize } from '../model/format';
import { isLanguage, languageFor, plural, text, type Key, type Language, type PluralKey, type Values } from '../texts';

export type Theme = 'auto' | 'light' | 'dark';

/** Returns a stored setting; null if the browser has none or it cannot be read. */
export function kept(name: string): unknown {
  try {
    const value = localStorage.getItem(`longhaul.${name}`);
    return value === null ? null : JSON.parse(value);
  } catch {
    return null;
  }
}

export function keep(name: string, value: unknown): void {
  try {
    localStorage.setItem(`longhaul.${name}`, JSON.stringify(value));
  } catch {
    // Storage is unavailable, so the setting lasts until the page is closed.
  }
}

const keptLanguage = kept('language');
const keptTheme = kept('theme');

export const language = signal<Language>(isLanguage(keptLanguage) ? keptLanguage : languageFor(navigator.languages));
export const theme = signal<Theme>(keptTheme === 'light' || keptTheme === 'dark' ? keptTheme : 'auto');

effect(() => {
  document.documentElement.lang = language.value;
});

effect(() => {
  if (theme.value === 'auto') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme.value;
});

export function chooseLanguage(value: string): void {
  if (!isLanguage(value)) return;
  language.value = value;
  keep('language', value);
}

export function chooseTheme(value: string): void {
  theme.value = value === 'light' || value === 'dark' ? value : 'auto';
  keep('theme', theme.value);
}

/** Locale for dates and numbers: the chosen language in the user's region. */
const locale = computed(() => {
  const local = navigator.languages.find((tag) => languageFor([tag]) === language.value && tag.startsWith(language.value));
  try {
    // Some browsers list languages that Intl does not know, such as `en-US@posix`.
    return Intl.getCanonicalLocales(local)[0] ?? language.value;
  } catch {
    return language.value;
  }
});

/**
 * Returns a text in the chosen language. Components that call these functions follow its changes.
 */
export const t = (key: Key, values?: Values): string => text(language.value, key, values);
export const tn = (key: PluralKey, count: number, values?: Values): string =>
  plural(language.value, key, count, { number: formatCount(count, locale.value), ...values });
export const size = (bytes: number): string => formatSize(bytes, locale.value);
export const rate = (bps: number): string => formatRate(bps, locale.value);
export const count = (value: number): string => formatCount(value, locale.value);
export const moment = (value: string | null | undefined, seconds = false): string =>
  formatMoment(value, locale.value, seconds);
/** Formats a duration, with one decimal place if it is short. */
export const duration = (seconds: number): string =>
  seconds < 9.95 ? `${decimal(seconds, 1, locale.value)} s` : formatDuration(seconds);
/** Formats a time of day from seconds since the Unix epoch. */
export const clock = (seconds: number): string => new Date(seconds * 1000).toLocaleTimeString(locale.value);
