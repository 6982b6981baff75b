import { effect } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { View } from '../model/route';
import { connected } from '../state/jobs';
import { dismiss, messages } from '../state/messages';
import { route } from '../state/route';
import { session, ticketRefused } from '../state/session';
import { chooseLanguage, chooseTheme, language, t, theme } from '../state/settings';
import { LANGUAGES, type Key } from '../texts';
import { Dialogs } from './dialogs';
import { FilesView } from './files-view';
import { JobsView } from './jobs-view';
import { PlacesView } from './places-view';

const VIEWS: readonly View[] = ['files', 'jobs', 'places'];
const THEMES = ['auto', 'light', 'dark'] as const;

export function App() {
  useEffect(
    () =>
      effect(() => {
        const view: Key = `nav.${route.value.view}`;
        document.title = session.value === 'in' ? `${t(view)} · ${t('app.title')}` : t('app.title');
      }),
    [],
  );
  return (
    <>
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          // A link would change the fragment of the address, which selects the view.
          event.preventDefault();
          document.getElementById('content')?.focus();
        }}
      >
        {t('app.skip')}
      </a>
      <Header />
      <main id="content" tabIndex={-1}>
        <Content />
      </main>
      <Messages />
      <Dialogs />
    </>
  );
}

function Header() {
  const signedIn = session.value === 'in';
  return (
    <header class="top">
      <h1>{t('app.title')}</h1>
      {signedIn && (
        <nav aria-label={t('nav.label')}>
          {VIEWS.map((view) => (
            <a key={view} href={`#${view}`} aria-current={route.value.view === view ? 'page' : undefined}>
              {t(`nav.${view}`)}
            </a>
          ))}
        </nav>
      )}
      <p class={connected.value === false ? 'status away' : 'status'} role="status">
        {signedIn && connected.value !== null && t(connected.value ? 'status.connected' : 'status.away')}
      </p>
      <div class="choices">
        <select
          aria-label={t('settings.language')}
          value={language.value}
          onChange={(event) => { chooseLanguage(event.currentTarget.value); }}
        >
          {Object.entries(LANGUAGES).map(([tag, name]) => (
            <option key={tag} value={tag} lang={tag}>
              {name}
            </option>
          ))}
        </select>
        <select
          aria-label={t('settings.theme')}
          value={theme.value}
          onChange={(event) => { chooseTheme(event.currentTarget.value); }}
        >
          {THEMES.map((name) => (
            <option key={name} value={name}>
              {t(`theme.${name}`)}
            </option>
          ))}
        </select>
      </div>
    </header>
  );
}

function Content() {
  switch (session.value) {
    case 'starting':
      return <p class="page">{t('session.starting')}</p>;
    case 'out':
      return (
        <div class="page">
          <h2>{t('session.out.title')}</h2>
          {ticketRefused.value && <p>{t('session.ticket')}</p>}
          <p>{t('session.out.text')}</p>
          <pre>longhaul ui</pre>
        </div>
      );
    case 'away':
      return (
        <div class="page" role="status">
          <h2>{t('session.away.title')}</h2>
          <p>{t('session.away.text')}</p>
          <pre>longhaul ui</pre>
        </div>
      );
    case 'in':
      switch (route.value.view) {
        case 'files':
          return <FilesView />;
        case 'jobs':
          return <JobsView />;
        case 'places':
          return <PlacesView />;
      }
  }
}

function Messages() {
  return (
    <section class="messages" aria-label={t('messages.label')} aria-live="polite">
      {messages.value.map((message) => (
        <div key={message.id} class={message.error ? 'message error' : 'message'}>
          <span>
            {message.error && <strong>{t('error.label')}: </strong>}
            {message.text}
          </span>
          <button type="button" aria-label={t('button.dismiss')} onClick={() => { dismiss(message.id); }}>
            ×
          </button>
        </div>
      ))}
    </section>
  );
}
