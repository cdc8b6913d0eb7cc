-- Returns a text as it may be stored and shown: without passwords in URLs and after names, without
-- control characters, cut to p_limit, and on one line unless p_lines. Python's scrub.py masks more.
-- It searches only a little more than can be shown, because the time grows with the square of the
-- length. A backslash is a plain character, whatever the session's settings are.
create or replace function {schema}.redact(p_text text, p_limit int, p_lines boolean default false)
returns text
language sql immutable parallel safe
set standard_conforming_strings = on
as $$
  select
    case
      when length(clean.text) <= p_limit then clean.text
      else left(clean.text, p_limit - 1) || '…'
    end
  from (
    select regexp_replace(
      regexp_replace(
        left(p_text, 4 * p_limit + 4096),
        '(://)([^\s/?#]*@|[^\s:/?#@]*:(?![0-9]+[/?#])[^\s@"'']*@)', '\1***@', 'g'
      ),
      '((?:passw(?:or)?d|pwd|secret|token|(?:api|access|private|secret)[_-]?key|authorization)'
        || '["'']?\s{0,3}[:=]\s{0,3}(?:(?:bearer|basic) )?)'
        || '("(?:[^"\\]|\\.)*"?|''[^'']*''?|(?=\S*[0-9])[^\s,;&)}\]]+|(?<=\w=)[^\s,;&)}\]]+)',
      '\1***', 'gi'
    ) as text
  ) masked
  cross join lateral (
    select
      case
        when p_lines
          then regexp_replace(
            masked.text,
            '[\u0001-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]', '�', 'g'
          )
        else btrim(regexp_replace(
          masked.text,
          '[\u0001-\u0020\u007f-\u00a0\u2028-\u202e\u2066-\u2069]+', ' ', 'g'
        ))
      end as text
  ) clean
$$;
