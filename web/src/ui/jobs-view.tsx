import type { HistoryFilter } from '../model/jobs';
import { filter, historyJobs, loadHistory, loadingHistory, moreHistory, showHistory } from '../state/jobs';
import { route } from '../state/route';
import { t } from '../state/settings';
import type { Key } from '../texts';
import { JobDetails } from './job-details';
import { JobList } from './job-list';
import { Queue } from './queue';

const FILTERS: readonly HistoryFilter[] = ['all', 'done', 'failed', 'cancelled'];

function filterText(name: HistoryFilter): string {
  const key: Key = name === 'all' ? 'jobs.all' : `state.${name}`;
  return t(key);
}

export function JobsView() {
  const id = route.value.job;
  return (
    <div class={id === null ? 'jobs-view' : 'jobs-view with-details'}>
      <div class="jobs-lists">
        <section aria-labelledby="queue-title">
          <h2 id="queue-title">{t('jobs.queue')}</h2>
          <Queue height={352} />
        </section>
        <History current={id} />
      </div>
      {id !== null && <JobDetails key={id} id={id} />}
    </div>
  );
}

function History({ current }: { current: number | null }) {
  const jobs = historyJobs.value;
  return (
    <section class="history" aria-labelledby="history-title">
      <div class="section-head">
        <h2 id="history-title">{t('jobs.history')}</h2>
        <label>
          {t('jobs.filter')}{' '}
          <select
            value={filter.value}
            onChange={(event) => {
              const wanted = FILTERS.find((name) => name === event.currentTarget.value);
              if (wanted) showHistory(wanted);
            }}
          >
            {FILTERS.map((name) => (
              <option key={name} value={name}>
                {filterText(name)}
              </option>
            ))}
          </select>
        </label>
        {moreHistory.value && (
          <button type="button" disabled={loadingHistory.value} onClick={() => void loadHistory()}>
            {loadingHistory.value ? t('jobs.loading') : t('jobs.more')}
          </button>
        )}
      </div>
      {jobs.length === 0 ? (
        <p class="quiet">{t(filter.value === 'all' ? 'jobs.noHistory' : 'jobs.noMatch')}</p>
      ) : (
        <JobList label={t('jobs.history')} jobs={jobs} current={current} onNearEnd={() => void loadHistory()} />
      )}
    </section>
  );
}
