-- What a user of Neovim does, without one: opens a recipe, looks at what is shown, hovers, fixes.
local function said(what, value)
  io.stdout:write(what .. " " .. vim.json.encode(value) .. "\n")
end

local function wait(what, condition)
  if not vim.wait(30000, condition, 50) then
    said("late", what)
    vim.cmd("cquit 3")
  end
end

vim.cmd("edit r.yaml")
local command = vim.json.decode(vim.env.SERVER)
if vim.lsp.start then
  vim.lsp.start({ name = "speclaunch", cmd = command, root_dir = vim.fn.getcwd() })
else -- before 0.8
  local client = vim.lsp.start_client({ name = "speclaunch", cmd = command, root_dir = vim.fn.getcwd() })
  vim.lsp.buf_attach_client(0, client)
end

wait("diagnostics", function() return #vim.diagnostic.get(0) > 0 end)
local shown = {}
for _, one in ipairs(vim.diagnostic.get(0)) do
  table.insert(shown, { code = one.code, line = one.lnum + 1, column = one.col + 1 })
end
said("diagnostics", shown)

local line = vim.fn.search("speculative_num_draft_tokens")
vim.api.nvim_win_set_cursor(0, { line, 4 })
vim.lsp.buf.hover()
local window
wait("hover", function()
  for _, one in ipairs(vim.api.nvim_list_wins()) do
    if vim.api.nvim_win_get_config(one).relative ~= "" then
      window = one
      return true
    end
  end
end)
said("hover", vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(window), 0, -1, false))
vim.api.nvim_win_close(window, true)

local offered = {}
vim.ui.select = function(items, options, choose)
  for _, item in ipairs(items) do
    table.insert(offered, options.format_item and options.format_item(item) or item)
  end
  for at, text in ipairs(offered) do
    if text:find("Set it to 4", 1, true) then
      return choose(items[at], at)
    end
  end
end
vim.lsp.buf.code_action()
wait("fix", function() return vim.fn.search("tokens: 4", "nw") > 0 end)
said("offered", offered)
wait("clean", function()
  for _, one in ipairs(vim.diagnostic.get(0)) do
    if one.code == "SPL105" then return false end
  end
  return true
end)
said("text", vim.api.nvim_buf_get_lines(0, 0, -1, false))
vim.cmd("qall!")
